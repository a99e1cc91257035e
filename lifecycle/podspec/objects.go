package podspec

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Objects reads the ConfigMaps and Secrets that pods refer to: for volumes,
// environments and image pull credentials. If an object does not exist, the
// error is apimachinery's IsNotFound, and optional references are skipped; any
// other error is retried. All methods are safe for concurrent use.
// podsource.Store implements it.
type Objects interface {
	// ConfigMap and Secret return an object of the pod's namespace, which must
	// not be modified. The first call for a pod may start a watch, and may wait
	// for it until ctx is done.
	ConfigMap(ctx context.Context, pod *corev1.Pod, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, pod *corev1.Pod, name string) (*corev1.Secret, error)
	// Release is called when nothing of the pod is left on the node, so that
	// its watches can end. It may be called for a pod that never used any
	// object.
	Release(pod types.UID)
}

// TokenFunc requests a token of the pod's service account. The request's spec
// has audiences, lifetime and the bound object; the status of the result has
// the token and its expiration time. CreateToken of client-go uses the same
// types.
type TokenFunc func(ctx context.Context, pod *corev1.Pod, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error)
