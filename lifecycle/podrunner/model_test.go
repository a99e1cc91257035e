package podrunner_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/podcache"
)

// TestPlansConverge carries plans out on random pods while containers, sandboxes
// and whole nodes die under them, and then leaves them in peace: the plan must
// come to "nothing to do" in a few turns, nothing may run then that the spec does
// not name, and no container may ever be started twice for one attempt (the node
// refuses the second of a name).
func TestPlansConverge(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		b := newBed(t)
		pod := randomPod(random)
		for range 12 {
			disturb(t, random, b, pod)
			_ = b.sync(pod) // a back-off is an error here
		}
		settled := false
		for range 12 {
			b.clock.Step(6 * time.Minute) // over every back-off
			require.NoError(t, b.sync(pod), "seed %d", seed)
			a := podrunner.Plan(podrunner.Input{Pod: pod, Status: b.look(pod.UID)})
			if settled = a.Empty(); settled {
				break
			}
		}
		require.True(t, settled, "seed %d: %v", seed, podrunner.Plan(podrunner.Input{Pod: pod, Status: b.look(pod.UID)}))
		for _, c := range b.look(pod.UID).Containers {
			isName := func(s corev1.Container) bool { return s.Name == podcache.ContainerName(c) }
			require.True(t, !mayRun(c) || slices.ContainsFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), isName), "seed %d: %s runs", seed, podcache.ContainerName(c))
		}
		started := map[string]bool{}
		for _, c := range b.node.Calls() {
			if c.Method == "StartContainer" {
				require.False(t, started[c.ID], "seed %d: %s was started twice", seed, c.Object)
				started[c.ID] = true
			}
		}
	}
}

// randomPod has no program that ends by itself and is restarted for ever: such a
// pod never settles.
func randomPod(random *rand.Rand) *corev1.Pod {
	policies := []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever}
	pod := testPod()
	pod.Spec.RestartPolicy = policies[random.IntN(len(policies))]
	for i := range random.IntN(3) {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: fmt.Sprintf("init%d", i), Image: "job"})
	}
	for i := range 1 + random.IntN(3) {
		c := corev1.Container{Name: fmt.Sprintf("app%d", i), Image: "app"}
		if pod.Spec.RestartPolicy != corev1.RestartPolicyAlways && random.IntN(2) == 0 {
			c.Image = "job"
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	return pod
}

// disturb lets something happen to the node.
func disturb(t *testing.T, random *rand.Rand, b *bed, pod *corev1.Pod) {
	t.Helper()
	status := b.look(pod.UID)
	pick := func() string {
		if len(status.Containers) == 0 {
			return ""
		}
		return status.Containers[random.IntN(len(status.Containers))].GetId()
	}
	switch random.IntN(8) {
	case 0, 1:
		b.clock.Step(time.Duration(random.IntN(30)) * time.Second)
	case 2:
		_ = b.node.Kill(pick(), 137) // one that does not run can't be
	case 3:
		_ = b.node.Vanish(pick())
	case 4:
		_ = b.node.LoseTrack(pick())
	case 5:
		if s := status.ReadySandbox(); s != nil {
			require.NoError(t, b.node.KillSandbox(s.GetId()))
		}
	case 6:
		if random.IntN(4) == 0 {
			b.node.Reboot(0)
		}
		pod.Spec.Containers[0].Args = []string{fmt.Sprint(random.IntN(3))}
	case 7: // the last container of the spec goes, or another one comes
		all := pod.Spec.Containers
		if pod.Spec.Containers = slices.Clone(all[:len(all)-1]); len(all) == 1 || random.IntN(2) == 0 {
			pod.Spec.Containers = append(all, corev1.Container{Name: fmt.Sprintf("app%d", len(all)), Image: "app"})
		}
	}
}
