package podloop

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

func TestProblemOf(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		edit func(*corev1.Pod)
		want []string
	}{
		"good":         {func(*corev1.Pod) {}, nil},
		"no UID":       {func(p *corev1.Pod) { p.UID = "" }, []string{`metadata.uid ""`}},
		"paths":        {func(p *corev1.Pod) { p.UID, p.Name, p.Namespace = "../x", "x/../../evil", "a/b" }, []string{`metadata.uid "../x"`, `metadata.name "x/../../evil"`, `metadata.namespace "a/b"`}},
		"no container": {func(p *corev1.Pod) { p.Spec.Containers = nil }, []string{"spec.containers: at least one container is required"}},
		"names": {func(p *corev1.Pod) {
			p.Spec.InitContainers = []corev1.Container{{Name: "main"}, {Name: "../x"}}
			p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "main"}}}
		}, []string{`spec.containers[0].name "main": another container`, `spec.initContainers[1].name "../x"`, `spec.ephemeralContainers[0].name "main"`}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := newPod("web", "app:1")
			c.edit(pod)
			err := problemOf(pod)
			if c.want == nil {
				require.NoError(t, err)
				return
			}
			for _, want := range c.want {
				require.ErrorContains(t, err, want)
			}
		})
	}
	require.EqualError(t, problemOf(nil), "a pod is nil")
}

// Invalid pods are ignored, and Checks names them. The other pods run.
func TestSource_InvalidPods(t *testing.T) {
	t.Parallel()
	inBubble(t, func(b *bed) {
		evil := newPod("evil", "app:1", withUID("../x"))
		b.set(nil, evil, newPod("web", "app:1"))
		b.awaitRunning("web")
		require.Len(b.t, b.Pods(), 1)
		notes := func() (notes []string) {
			for _, c := range b.Checks() {
				if c.Name == "sources" {
					notes = c.Notes
				}
			}
			return notes
		}
		require.Len(b.t, notes(), 2)
		require.Equal(b.t, "source file: a pod is nil", notes()[0])
		require.Contains(b.t, notes()[1], `pod default/evil: metadata.uid "../x"`)
		b.set(newPod("web", "app:1"))
		b.eventually("the check has no notes any more", func() bool { return len(notes()) == 0 })
	})
}
