package status

import (
	"context"
	"encoding/json"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	statusutil "k8s.io/kubernetes/pkg/util/pod"

	"github.com/kubeparts/kubeparts/status"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// mergeWorld is a pod in the API server and a status that the node reports.
type mergeWorld struct {
	Pod    *corev1.Pod
	Status corev1.PodStatus
	MayRun bool // the pod may have running containers
}

func drawMergeWorld(d *judge.Draw) *mergeWorld {
	w := &mergeWorld{Pod: drawPod(d)}
	w.Pod.ResourceVersion = "7"
	w.Pod.Status = drawStatus(d, w.Pod, true)
	w.Status = drawStatus(d, w.Pod, true)
	if d.Chance(50) {
		w.Status = *w.Pod.Status.DeepCopy()
		for range d.Int(3) {
			drawEdit(d, &w.Status)
		}
	}
	w.MayRun = d.Chance(40)
	normalizeStatus(w.Pod, &w.Status)
	w.Pod, w.Status = stored(w.Pod), stored(&corev1.Pod{Status: w.Status}).Status
	return w
}

// stored returns an object as the API server returns it after an update.
func stored(pod *corev1.Pod) *corev1.Pod {
	text, err := json.Marshal(pod)
	if err != nil {
		panic(err) // every pod can be marshalled
	}
	out := &corev1.Pod{}
	if err := json.Unmarshal(text, out); err != nil {
		panic(err)
	}
	return out
}

func (w *mergeWorld) String() string { return encode(w) }

// mergePeer compares the API object after the status of the API server and the status of the
// node were merged and sent.
func mergePeer() judge.Peer[*mergeWorld] {
	return judge.Peer[*mergeWorld]{
		Name: "status/merge", World: drawMergeWorld, Kubelet: mergeOfKubelet, Ours: mergeOfOurs, Rules: mergeRules(), Scenarios: 300,
	}
}

func mergeOfKubelet(t *testing.T, w *mergeWorld) (all []judge.Facts) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Minute)
		before := w.Pod.DeepCopy()
		merged := mergePodStatus(w.Pod, w.Pod.Status, *w.Status.DeepCopy(), w.MayRun)
		server := &patches{pod: before}
		_, _, _, err := statusutil.PatchPodStatus(t.Context(), server, w.Pod.Namespace, w.Pod.Name, w.Pod.UID, w.Pod.Status, merged)
		f := judge.Facts{"error": encode(err)}
		statusFacts(f, "", &server.pod.Status)
		all = append(all, f)
	})
	return all
}

func mergeOfOurs(t *testing.T, w *mergeWorld) (all []judge.Facts) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Minute)
		merged, _ := status.Merge(w.Pod, &w.Status, w.MayRun, time.Now())
		body, err := status.Patch(w.Pod, &merged)
		pod := w.Pod
		if err == nil && body != nil {
			pod, err = patched(w.Pod, body)
		}
		f := judge.Facts{"error": encode(err)}
		statusFacts(f, "", &pod.Status)
		all = append(all, f)
	})
	return all
}

// patched returns a pod after a strategic merge patch.
func patched(pod *corev1.Pod, patch []byte) (*corev1.Pod, error) {
	before, err := json.Marshal(pod)
	if err != nil {
		return nil, err
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, corev1.Pod{})
	if err != nil {
		return nil, err
	}
	out := &corev1.Pod{}
	return out, json.Unmarshal(after, out)
}

// patches is an API server with one pod, which can be patched.
type patches struct {
	kubernetes.Interface
	pod *corev1.Pod
}

func (p *patches) CoreV1() typedcorev1.CoreV1Interface { return corePatches{patches: p} }

type corePatches struct {
	typedcorev1.CoreV1Interface
	patches *patches
}

func (c corePatches) Pods(string) typedcorev1.PodInterface { return podPatches{patches: c.patches} }

type podPatches struct {
	typedcorev1.PodInterface
	patches *patches
}

func (p podPatches) Patch(_ context.Context, _ string, _ types.PatchType, data []byte, _ metav1.PatchOptions, _ ...string) (*corev1.Pod, error) {
	pod, err := patched(p.patches.pod, data)
	if err == nil {
		p.patches.pod = pod
	}
	return pod, err
}
