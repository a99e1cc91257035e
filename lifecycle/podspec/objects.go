package podspec

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Objects finds the ConfigMaps and Secrets that pods refer to: for volumes, environments
// and the credentials of images. An error that is apimachinery's IsNotFound reports that
// the object does not exist, so that an optional reference to it is left out; any other
// error is retried. All methods may be called by several goroutines at once.
// podsource.Store has them.
type Objects interface {
	// ConfigMap and Secret return an object of the pod's namespace. It is not modified.
	// The first call for a pod may start a watch, and may wait for it until ctx is done.
	ConfigMap(ctx context.Context, pod *corev1.Pod, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, pod *corev1.Pod, name string) (*corev1.Secret, error)
	// Release reports that nothing of the pod is left on the node: its watches can end. It
	// may be called for a pod that never asked for anything.
	Release(pod types.UID)
}

// TokenFunc requests a token of the pod's service account. Audiences, lifetime and the
// bound object are set in the request's spec; the result's status has the token and when
// it expires. CreateToken of client-go takes and returns the same types.
type TokenFunc func(ctx context.Context, pod *corev1.Pod, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error)
