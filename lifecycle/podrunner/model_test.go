package podrunner_test

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/kubeparts/kubeparts/lifecycle/podrunner"
	"github.com/kubeparts/kubeparts/lifecycle/podspec"
	"github.com/kubeparts/kubeparts/lifecycle/podworker"
	"github.com/kubeparts/kubeparts/podcache"
)

// TestPlansConverge executes plans on random pods while containers, sandboxes and nodes fail,
// probes fail, resources change and ephemeral containers are added. Then the disturbances
// stop: within a few syncs the plan must be "nothing to do", and no container may be running
// that is not in the spec. No container may be started twice for one attempt (the node
// rejects a second container with the same name), and no ephemeral container may be started
// twice. Finally the pod is removed, and nothing of the pod may be left.
func TestPlansConverge(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		b := newSupplied(t)
		b.cgroups.busy, b.volumes.stuck = random.IntN(2), random.IntN(2)
		pod := randomPod(random)
		for range 12 {
			disturb(t, random, b.bed, pod)
			_ = b.sync(pod) // a back-off is an error here
		}
		clear(b.probes)
		settled := false
		for range 16 {
			b.clock.Step(6 * time.Minute) // longer than every back-off
			plans := len(b.plans)
			require.NoError(t, b.sync(pod), "seed %d", seed)
			if settled = len(b.plans) == plans; settled {
				break
			}
		}
		require.True(t, settled, "seed %d: %v", seed, b.plans[max(0, len(b.plans)-3):])
		b.checkSettled(pod, seed)
		b.checkUp(pod, seed)
		b.checkStartedOnce(pod, seed)
		b.checkEnd(pod, seed)
	}
}

// checkEnd checks that a terminated pod stops and leaves nothing.
func (s *supplied) checkEnd(pod *corev1.Pod, seed uint64) {
	s.t.Helper()
	require.Empty(s.t, s.held.left(), "seed %d: leases were not released", seed)
	require.NoError(s.t, s.terminate(pod, 30*time.Second), "seed %d", seed)
	err := errors.New("not tried")
	for try := 0; err != nil && try < 3; try++ {
		err = s.runner.SyncTerminatedPod(s.t.Context(), podworker.SyncRequest{Pod: pod, Status: s.look(pod.UID)})
	}
	require.NoError(s.t, err, "seed %d", seed)
	require.NoError(s.t, s.runner.RemovePod(s.t.Context(), s.look(pod.UID)), "seed %d", seed)
	status := s.look(pod.UID)
	require.Empty(s.t, status.Containers, "seed %d", seed)
	require.Empty(s.t, status.Sandboxes, "seed %d", seed)
	require.Empty(s.t, s.files(), "seed %d", seed)
	require.Empty(s.t, s.volumes.pods, "seed %d", seed)
	logs, err := os.ReadDir(s.logs)
	require.NoError(s.t, err)
	require.Empty(s.t, logs, "seed %d", seed)
}

// checkSettled checks that only containers in the spec are running, with the requested
// resources.
func (b *bed) checkSettled(pod *corev1.Pod, seed uint64) {
	b.t.Helper()
	names := map[string]int64{}
	for c := range podspec.Containers(&pod.Spec) {
		names[c.Name] = c.Resources.Limits.Memory().Value()
	}
	for _, c := range pod.Spec.EphemeralContainers {
		names[c.Name] = 0
	}
	for _, c := range b.look(pod.UID).Containers {
		name := podcache.ContainerName(c)
		require.True(b.t, !mayRun(c) || slices.Contains(slices.Collect(maps.Keys(names)), name), "seed %d: unexpected running container %s", seed, name)
		if running(c) {
			require.Equal(b.t, names[name], max(0, c.GetResources().GetLinux().GetMemoryLimitInBytes()), "seed %d: memory of %s", seed, name)
		}
	}
}

// checkUp checks that with restartPolicy Always every container that does not exit by itself
// is running, and that sidecars are running as long as another container is.
func (b *bed) checkUp(pod *corev1.Pod, seed uint64) {
	b.t.Helper()
	status, any := b.look(pod.UID), false
	runs := func(c *corev1.Container) bool {
		s := status.Active(c.Name)
		return s != nil && running(s)
	}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		any = any || runs(c)
		require.True(b.t, runs(c) || c.RestartPolicy != nil || pod.Spec.RestartPolicy != corev1.RestartPolicyAlways, "seed %d: %s is not running", seed, c.Name)
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		require.True(b.t, !podspec.IsSidecar(c) || runs(c) == any, "seed %d: sidecar %s is running: %t", seed, c.Name, runs(c))
	}
}

// checkStartedOnce checks all calls: one start per ID, one start per ephemeral
// container, and the first starts of init containers in order.
func (b *bed) checkStartedOnce(pod *corev1.Pod, seed uint64) {
	b.t.Helper()
	started := map[string]bool{}
	var names []string
	for _, c := range b.node.Calls() {
		if c.Method != "StartContainer" {
			continue
		}
		require.False(b.t, started[c.ID], "seed %d: %s was started twice", seed, c.Object)
		started[c.ID] = true
		names = append(names, path.Base(c.Object))
	}
	for _, c := range pod.Spec.EphemeralContainers {
		count := len(names) - len(slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == c.Name }))
		require.LessOrEqual(b.t, count, 1, "seed %d: ephemeral container %s was started again", seed, c.Name)
	}
	last := -1
	for _, c := range pod.Spec.InitContainers {
		first := slices.Index(names, c.Name)
		require.True(b.t, first > last || first < 0, "seed %d: init container %s was started too early: %v", seed, c.Name, names)
		last = max(last, first)
	}
}

// randomPod returns a random pod. A program that exits by itself is not restarted forever,
// because the pod would then never reach a stable state.
func randomPod(random *rand.Rand) *corev1.Pod {
	policies := []corev1.RestartPolicy{corev1.RestartPolicyAlways, corev1.RestartPolicyOnFailure, corev1.RestartPolicyNever}
	pod := testPod()
	pod.Spec.RestartPolicy = policies[random.IntN(len(policies))]
	anew := []corev1.ContainerRestartRule{{
		Action:    corev1.ContainerRestartRuleActionRestartAllContainers,
		ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{42}},
	}}
	pod.Spec.Volumes = []corev1.Volume{{Name: "data"}}
	for i := range random.IntN(4) {
		c := corev1.Container{Name: fmt.Sprintf("init%d", i), Image: "job"}
		if random.IntN(2) == 0 {
			c.Image, c.RestartPolicy, c.LivenessProbe = "app", new(corev1.ContainerRestartPolicyAlways), &corev1.Probe{}
		}
		if random.IntN(2) == 0 {
			c.StartupProbe = &corev1.Probe{}
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
	}
	for i := range 1 + random.IntN(3) {
		c := corev1.Container{
			Name: fmt.Sprintf("app%d", i), Image: "app", LivenessProbe: &corev1.Probe{}, TerminationMessagePath: "/dev/termination-log",
			VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
		}
		if pod.Spec.RestartPolicy != corev1.RestartPolicyAlways && random.IntN(2) == 0 {
			c.Image = "job"
		}
		if random.IntN(4) == 0 {
			c.Image, c.RestartPolicy, c.RestartPolicyRules = "anew", new(corev1.ContainerRestartPolicyNever), anew
		}
		if random.IntN(4) == 0 {
			c.ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: corev1.ResourceMemory, RestartPolicy: corev1.RestartContainer}}
		}
		pod.Spec.Containers = append(pod.Spec.Containers, c)
	}
	return pod
}

// disturb causes a random failure on the node.
func disturb(t *testing.T, random *rand.Rand, b *bed, pod *corev1.Pod) {
	t.Helper()
	status := b.look(pod.UID)
	pick := func() string {
		if len(status.Containers) == 0 {
			return ""
		}
		return status.Containers[random.IntN(len(status.Containers))].GetId()
	}
	switch random.IntN(11) {
	case 0, 1:
		b.clock.Step(time.Duration(random.IntN(30)) * time.Second)
	case 2:
		_ = b.node.Kill(pick(), 137) // an error means that the container is not running
	case 3:
		_ = b.node.RemoveSilently(pick())
	case 4:
		_ = b.node.SetUnknown(pick())
	case 5:
		if s := status.ReadySandbox(); s != nil {
			require.NoError(t, b.node.KillSandbox(s.GetId()))
		}
	case 6:
		if random.IntN(4) == 0 {
			b.node.Reboot(0)
		}
		pod.Spec.Containers[0].Args = []string{fmt.Sprint(random.IntN(3))}
	case 7: // the last container of the spec is removed, or a container is added
		all := pod.Spec.Containers
		if pod.Spec.Containers = slices.Clone(all[:len(all)-1]); len(all) == 1 || random.IntN(2) == 0 {
			pod.Spec.Containers = append(all, corev1.Container{Name: fmt.Sprintf("app%d", len(all)), Image: "app"})
		}
	case 8:
		b.probes[pick()] = podrunner.ProbeResults{Started: random.IntN(2) == 0, StartupFailed: random.IntN(2) == 0, LivenessFailed: random.IntN(2) == 0}
	case 9:
		name := fmt.Sprintf("debug%d", len(pod.Spec.EphemeralContainers))
		pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, corev1.EphemeralContainer{
			EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: name, Image: []string{"job", "app"}[random.IntN(2)]},
		})
	case 10:
		pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: *resource.NewQuantity(int64(2+random.IntN(5))<<20, resource.BinarySI)}
	}
}
