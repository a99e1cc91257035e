package images_test

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/fakecri"
	"github.com/kubeparts/kubeparts/lifecycle/images"
)

// A pod's image is in a registry that requires a password.
func Example() {
	node, err := fakecri.New(fakecri.Config{Registry: []fakecri.Image{
		{Name: "registry.example/web:1", SizeBytes: 1 << 20, Pull: fakecri.Pull{Username: "me", Password: "pass"}},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := images.New(images.Config{Images: node})
	if err != nil {
		fmt.Println(err)
		return
	}
	key := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "key"},
		Type:       corev1.SecretTypeDockerConfigJson,
		Data:       map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{"registry.example":{"auth":"bWU6cGFzcw=="}}}`)},
	}
	for _, secrets := range [][]*corev1.Secret{nil, {key}} {
		got, err := m.Ensure(context.Background(), images.Request{
			Pod:   &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "1"}},
			Image: "registry.example/web:1", Secrets: secrets,
		})
		if refused, ok := errors.AsType[*images.Error](err); ok {
			fmt.Println("waiting:", refused.Reason)
			continue
		}
		fmt.Println("there:", got.Image.GetRepoTags(), got.Image.GetSize(), "bytes")
		got.Release() // after the container has been created
	}
	// Output:
	// waiting: ErrImagePull
	// there: [registry.example/web:1] 1048576 bytes
}

// nodeConfig is a provider that reads the configuration of the node's container
// tools, such as ~/.docker/config.json.
type nodeConfig struct{ keys *images.Keyring }

func (nodeConfig) Name() string { return "node" }

func (n nodeConfig) Credentials(_ context.Context, r images.CredentialRequest) (found []*runtimeapi.AuthConfig, err error) {
	for _, c := range n.keys.Lookup(r.Repository) {
		found = append(found, c.Auth())
	}
	return found, nil
}

// The node has its own credentials, for all its pods.
func ExampleCredentialProvider() {
	node, err := fakecri.New(fakecri.Config{Registry: []fakecri.Image{
		{Name: "registry.example/web:1", SizeBytes: 1 << 20, Pull: fakecri.Pull{Username: "me", Password: "pass"}},
	}})
	if err != nil {
		fmt.Println(err)
		return
	}
	keys, err := images.NewKeyring(&corev1.Secret{
		Type: corev1.SecretTypeDockerConfigJson, // a real program reads it from a file
		Data: map[string][]byte{corev1.DockerConfigJsonKey: []byte(`{"auths":{"registry.example":{"auth":"bWU6cGFzcw=="}}}`)},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	m, err := images.New(images.Config{Images: node, Credentials: []images.CredentialProvider{nodeConfig{keys}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	got, err := m.Ensure(context.Background(), images.Request{
		Pod:   &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "1"}},
		Image: "registry.example/web:1",
	})
	fmt.Println(got.Image.GetRepoTags(), err)
	// Output:
	// [registry.example/web:1] <nil>
}
