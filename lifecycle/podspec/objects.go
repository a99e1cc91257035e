package podspec

import (
	"context"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Objects reads the ConfigMaps and Secrets to which pods refer in volumes,
// environment variables and image pull secrets. If an object does not exist,
// the methods return an error for which IsNotFound of apimachinery's package
// errors reports true. The caller then skips an optional reference. After any
// other error, the caller retries. All methods are safe for concurrent use.
// podsource.Store implements Objects.
type Objects interface {
	// ConfigMap and Secret return an object of the pod's namespace. The caller
	// must not modify the object. The first call for a pod may start a watch,
	// and may wait for the watch's first result until ctx is done.
	ConfigMap(ctx context.Context, pod *corev1.Pod, name string) (*corev1.ConfigMap, error)
	Secret(ctx context.Context, pod *corev1.Pod, name string) (*corev1.Secret, error)
	// Release ends the watches for a pod. The agent calls Release when nothing
	// of the pod is left on the node, even if the pod never used an object.
	Release(pod types.UID)
}

// TokenFunc requests a token of the pod's service account. The spec of the
// request contains the audiences, the lifetime and the object to which the
// token is bound. The status of the result contains the token and its
// expiration time. CreateToken of client-go uses the same types.
type TokenFunc func(ctx context.Context, pod *corev1.Pod, request *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error)
