package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kubeparts/kubeparts/agent"
)

// configMap returns a ConfigMap with one key.
func configMap(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Data: map[string]string{"key": value}}
}

// withVolume adds a volume to a pod.
func withVolume(pod *corev1.Pod, source corev1.VolumeSource) *corev1.Pod {
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: source})
	pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "v", MountPath: "/v"})
	return pod
}

// fromConfigMap returns a pod with a volume of a ConfigMap.
func fromConfigMap(pod, name string) *corev1.Pod {
	return withVolume(newPod(pod, "demo/web:1"), corev1.VolumeSource{
		ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: name}},
	})
}

// file returns the content of a file in the volume of a pod.
func (b *bed) file(pod, plugin, name string) string {
	data, err := os.ReadFile(filepath.Join(b.root, "pods", string(b.pod(pod).UID), "volumes", "kubernetes.io~"+plugin, "v", name))
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func TestObjects_ChangedConfigMapReachesItsPods(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.put("configmaps", configMap("settings", "one"))
		b.put("configmaps", configMap("unused", "zero"))
		b.put("pods", fromConfigMap("a", "settings"))
		b.put("pods", fromConfigMap("b", "settings"))
		b.start()
		after(5 * time.Second)
		require.Equal(b.t, []string{"a", "b"}, b.running())
		require.Equal(b.t, "one", b.file("a", "configmap", "key"))
		require.Len(b.t, b.sent("watch configmaps"), 1, "one watch for both pods, and none for other objects")

		b.put("configmaps", configMap("settings", "two"))
		after(time.Second)
		require.Equal(b.t, "two", b.file("a", "configmap", "key"))
		require.Equal(b.t, "two", b.file("b", "configmap", "key"))
	})
}

// A pod waits for a ConfigMap and a Secret that do not exist yet, and starts as soon as they do.
func TestObjects_AreAwaited(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.put("pods", fromConfigMap("a", "settings"))
		secret := newPod("s", "demo/web:1")
		secret.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "PASSWORD", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "db"}, Key: "key",
		}}}}
		b.put("pods", secret)
		b.start()
		after(time.Minute)
		require.Empty(b.t, b.running())
		require.Equal(b.t, "ContainerCreating", b.pod("a").Status.ContainerStatuses[0].State.Waiting.Reason)
		require.Equal(b.t, "CreateContainerConfigError", b.pod("s").Status.ContainerStatuses[0].State.Waiting.Reason)
		require.Positive(b.t, b.recorded("FailedMount"))

		b.put("configmaps", configMap("settings", "one"))
		b.put("secrets", &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "db", Namespace: "default"}, Data: map[string][]byte{"key": []byte("x")}})
		after(time.Second)
		require.Equal(b.t, []string{"a", "s"}, b.running())
	})
}

// The Node authorizer refuses the first request, because it does not know yet that the pod is bound
// to the node.
func TestObjects_ForbiddenAtFirst(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.put("configmaps", configMap("settings", "one"))
		began := time.Now()
		b.failing(func(_ *http.Request, q request) error {
			if q.resource == "configmaps" && time.Since(began) < time.Second {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "settings", errors.New("no relationship found"))
			}
			return nil
		})
		b.put("pods", fromConfigMap("a", "settings"))
		b.start()
		require.Equal(b.t, []string{"a"}, b.running())
		require.Zero(b.t, b.recorded("FailedMount"))
	})
}

func TestObjects_LastingErrorIsNamed(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.failing(func(_ *http.Request, q request) error {
			if q.resource == "configmaps" {
				return errors.New("etcd is down")
			}
			return nil
		})
		b.put("pods", fromConfigMap("a", "settings"))
		b.put("pods", newPod("other", "demo/web:1"))
		b.start()
		after(time.Minute)
		require.Equal(b.t, []string{"other"}, b.running())
		require.Contains(b.t, b.message("FailedMount"), "etcd is down")
		b.put("configmaps", configMap("settings", "one"))
		b.failing(nil)
		after(time.Minute)
		require.Equal(b.t, []string{"a", "other"}, b.running())
	})
}

// The API server is away: pods use what was received.
func TestObjects_AreServedFromTheCacheWhileTheAPIServerIsAway(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.put("configmaps", configMap("settings", "one"))
		b.put("pods", fromConfigMap("a", "settings"))
		b.start()
		after(5 * time.Second)
		b.setAway(true)
		require.NoError(b.t, b.runtime.Kill("default/a/main", 1))
		after(10 * time.Minute)
		require.Equal(b.t, []string{"a"}, b.running())
	})
}

// The watch ends with the last pod that uses the object.
func TestObjects_WatchEndsWithTheLastPod(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.put("configmaps", configMap("settings", "one"))
		b.put("pods", fromConfigMap("a", "settings"))
		b.put("pods", fromConfigMap("b", "settings"))
		b.start()
		after(5 * time.Second)
		require.Equal(b.t, 1, b.watching("configmaps"))
		b.remove("pods", "default", "a")
		after(time.Minute)
		require.Equal(b.t, 1, b.watching("configmaps"))
		b.remove("pods", "default", "b")
		after(time.Minute)
		require.Zero(b.t, b.watching("configmaps"))
	})
}

func TestObjects_ImmutableObjectsAreNotWatched(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		c := configMap("settings", "one")
		c.Immutable = new(true)
		b.put("configmaps", c)
		b.put("secrets", &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "db", Namespace: "default"}, Data: map[string][]byte{"k": []byte("x")}, Immutable: new(true)})
		b.put("pods", fromConfigMap("a", "settings"))
		b.put("pods", withVolume(newPod("s", "demo/web:1"), corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "db"}}))
		b.start()
		after(5 * time.Second)
		require.Equal(b.t, []string{"a", "s"}, b.running())
		require.Equal(b.t, "x", b.file("s", "secret", "k"))
		require.Zero(b.t, b.watching("configmaps"))
		require.Zero(b.t, b.watching("secrets"))
		b.put("pods", fromConfigMap("b", "settings"))
		after(5 * time.Second)
		require.Equal(b.t, []string{"a", "b", "s"}, b.running())
	})
}

// projectedToken returns a pod with the volume that the API server adds for access to itself.
func projectedToken(name string) *corev1.Pod {
	return withVolume(newPod(name, "demo/web:1"), corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(3600))}},
		{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}}},
	}}})
}

func TestTokens_AreRefreshedAtEightyPercentOfTheirLife(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.put("configmaps", configMap("kube-root-ca.crt", "authority"))
		b.put("pods", projectedToken("a"))
		b.start()
		after(5 * time.Second)
		require.Equal(b.t, "authority", b.file("a", "projected", "key"))
		first := b.file("a", "projected", "token")
		require.Contains(b.t, first, "of default/default for a")
		after(46 * time.Minute)
		require.Equal(b.t, first, b.file("a", "projected", "token"))
		after(4 * time.Minute)
		require.NotEqual(b.t, first, b.file("a", "projected", "token"))
		require.Len(b.t, b.sent("create serviceaccounts/token default/default"), 2)
	})
}

// A token that can't be refreshed is used until it expires.
func TestTokens_RefreshFails(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		_, ac := b.join()
		pod := newPod("a", "demo/web:1")
		pod.UID = "uid-a"
		ask := func(audience string) (*authenticationv1.TokenRequest, error) {
			return ac.Cluster.Tokens(b.t.Context(), pod, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
				ExpirationSeconds: new(int64(3600)), Audiences: []string{audience},
				BoundObjectRef: &authenticationv1.BoundObjectReference{Name: pod.Name, UID: pod.UID},
			}})
		}
		first, err := ask("vault")
		require.NoError(b.t, err)
		other, err := ask("other")
		require.NoError(b.t, err)
		require.NotEqual(b.t, first.Status.Token, other.Status.Token)

		b.failing(func(*http.Request, request) error { return errors.New("the API server is away") })
		after(55 * time.Minute)
		again, err := ask("vault")
		require.NoError(b.t, err)
		require.Equal(b.t, first.Status.Token, again.Status.Token)
		require.Equal(b.t, 1, b.logged("could not refresh a service account token"))
		after(6 * time.Minute)
		_, err = ask("vault")
		require.ErrorContains(b.t, err, "request a token of service account default/default")
		require.ErrorContains(b.t, err, "the API server is away")

		b.failing(nil)
		_, err = ask("vault")
		require.NoError(b.t, err)
		b.forget()
		_, err = ask("vault")
		require.NoError(b.t, err)
		require.Empty(b.t, b.sent("create serviceaccounts"), "the token is cached")
		ac.Cluster.Objects.Release(pod.UID)
		_, err = ask("vault")
		require.NoError(b.t, err)
		require.Len(b.t, b.sent("create serviceaccounts"), 1, "Release forgets the tokens of the pod")
	})
}

// forbidTokens makes the API server refuse requests for tokens for some time.
func (b *bed) forbidTokens(d time.Duration) {
	end := time.Now().Add(d)
	b.failing(func(_ *http.Request, q request) error {
		if q.resource == "serviceaccounts" && time.Now().Before(end) {
			return apierrors.NewForbidden(corev1.Resource("serviceaccounts/token"), q.name, errors.New("no relationship found"))
		}
		return nil
	})
}

// The Node authorizer permits the request for the token of a pod some time after the pod was bound.
// The pod starts at once then.
func TestTokens_ForbiddenAtFirst(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.put("configmaps", configMap("kube-root-ca.crt", "authority"))
		b.start()
		after(5 * time.Second)
		b.forbidTokens(time.Second)
		b.put("pods", projectedToken("a"))
		after(2 * time.Second)
		require.Equal(b.t, []string{"a"}, b.running())
		require.Zero(b.t, b.recorded("FailedMount"))
	})
}

// The pauses between two requests double. No request is sent after three seconds.
func TestTokens_Forbidden(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		_, ac := b.join()
		b.forbidTokens(time.Hour)
		began := time.Now()
		_, err := ac.Cluster.Tokens(b.t.Context(), newPod("a", "demo/web:1"), &authenticationv1.TokenRequest{})
		require.ErrorContains(b.t, err, "no relationship found")
		require.Len(b.t, b.sent("create serviceaccounts"), 6)
		require.Equal(b.t, (50+100+200+400+800)*time.Millisecond, time.Since(began))
	})
}

// A token that is valid for a year is refreshed every day.
func TestTokens_LongLivedTokens(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		_, ac := b.join()
		pod := newPod("a", "demo/web:1")
		ask := func() string {
			token, err := ac.Cluster.Tokens(b.t.Context(), pod, &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
				ExpirationSeconds: new(int64(365 * 24 * 3600)), BoundObjectRef: &authenticationv1.BoundObjectReference{Name: "a"},
			}})
			require.NoError(b.t, err)
			return token.Status.Token
		}
		first := ask()
		after(23 * time.Hour)
		require.Equal(b.t, first, ask())
		after(time.Hour)
		require.NotEqual(b.t, first, ask())
	})
}

// service returns a service with one port.
func service(namespace, name, ip string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Annotations: map[string]string{"long": "text"}},
		Spec:       corev1.ServiceSpec{ClusterIP: ip, Ports: []corev1.ServicePort{{Port: 443}}, ExternalName: "x"},
	}
}

func TestServices_AreKnownByNamespace(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.put("services", service("default", "kubernetes", "10.96.0.1"))
		b.put("services", service("default", "db", "10.96.0.2"))
		b.put("services", service("other", "web", "10.96.0.3"))
		c, ac := b.join()
		services := ac.Cluster.Services
		_, err := services("default")
		require.EqualError(b.t, err, "the services are not known yet: the API server has not answered yet")
		a, err := agent.New(ac)
		require.NoError(b.t, err)
		ctx, cancel := context.WithCancel(b.t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx, a) }()
		after(time.Second)
		found, err := services("default")
		require.NoError(b.t, err)
		require.Len(b.t, found, 2)
		require.Empty(b.t, found[0].Annotations, "fields that nobody reads take no memory")
		require.Equal(b.t, int32(443), found[0].Spec.Ports[0].Port)
		found, err = services("none")
		require.NoError(b.t, err)
		require.Empty(b.t, found)
		cancel()
		require.NoError(b.t, <-done)
		require.ErrorContains(b.t, c.Run(ctx, a), "runs only once")
	})
}

// Pods are not started before the services are known.
func TestServices_PodsWaitForThem(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.failing(func(_ *http.Request, q request) error {
			if q.resource == "services" {
				return errors.New("etcd is down")
			}
			return nil
		})
		b.put("pods", newPod("web", "demo/web:1"))
		b.start()
		after(time.Minute)
		require.Empty(b.t, b.running())
		require.Contains(b.t, fmt.Sprint(b.pod("web").Status.ContainerStatuses), "the services are not known yet")
		b.failing(nil)
		after(2 * time.Minute)
		require.Equal(b.t, []string{"web"}, b.running())
	})
}

func TestRuntimeClass_Handler(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		b.put("runtimeclasses", &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "sandboxed"}, Handler: "vm"})
		_, before := b.join()
		_, err := before.Cluster.RuntimeHandler("sandboxed")
		require.ErrorContains(b.t, err, "the runtime classes are not known yet")
		b.start()
		pod := newPod("web", "demo/web:1")
		pod.Spec.RuntimeClassName = new("missing")
		b.put("pods", pod)
		after(time.Minute)
		require.Empty(b.t, b.running())
		require.Contains(b.t, b.message("FailedCreatePodSandBox"), `RuntimeClass "missing" does not exist`)
		b.put("runtimeclasses", &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "missing"}, Handler: "runc"})
		after(2 * time.Minute)
		require.Equal(b.t, []string{"web"}, b.running())
	})
}
