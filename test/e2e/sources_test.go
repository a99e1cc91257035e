//go:build e2e

package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
)

// idlePod returns a pod that does nothing. metadata is optional.
func idlePod(name, metadata string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: " + name + metadata + "}\nspec:\n" +
		"  terminationGracePeriodSeconds: 1\n" +
		"  containers: [{name: idle, image: \"kubeparts.test/testserver:1\", args: [sleep, \"3600\"]}]\n"
}

// requireOps requires that the agent has logged this number of operations of each type for
// the pods of a manifest, one line each.
func (n *node) requireOps(name string, adds, updates, removes int) {
	n.t.Helper()
	got := [3]int{}
	for line := range strings.Lines(n.output.String()) {
		for i, op := range []string{"ADD", "UPDATE", "REMOVE"} {
			if strings.Contains(line, " op="+op+" pod=default/"+name+"-"+n.hostname+" ") {
				got[i]++
			}
		}
	}
	require.Equal(n.t, [3]int{adds, updates, removes}, got, "number of ADD, UPDATE and REMOVE operations of %s", name)
}

// requireNoProblemLeft requires that every problem is resolved. On a busy machine the agent
// may read an incomplete file, which is a temporary problem.
func (n *node) requireNoProblemLeft() {
	n.t.Helper()
	resolved := n.output.linesWith("a problem with a manifest was resolved")
	require.Equal(n.t, resolved, n.output.linesWith("could not use a manifest, will use its last valid version if there is one"))
}

// requireStays requires that the pod's sandbox and containers do not change for a while.
func requireStays(t *testing.T, pod *corev1.Pod, was string) {
	t.Helper()
	stays(t, quiet, "pod "+pod.Name, func() (string, bool) {
		now, err := live(pod)
		return fmt.Sprint(now, err), err == nil && now == was
	})
}

// run waits until the pod of a manifest is running and returns it with the description of its
// sandbox and containers.
func (n *node) run(name string) (pod *corev1.Pod, was string) {
	n.t.Helper()
	pod = n.waitRunning(name)
	was, err := live(pod)
	require.NoError(n.t, err)
	return pod, was
}

// saveLikeVim writes a file as vim does: it creates a swap file, tests whether it can write,
// moves the old file away, writes the new file, and removes the other files.
func (n *node) saveLikeVim(file, text string) {
	n.t.Helper()
	in := func(name string) string { return filepath.Join(n.manifests, name) }
	for _, err := range []error{
		os.WriteFile(in("."+file+".swp"), []byte("swap"), 0o600),
		os.WriteFile(in("4913"), nil, 0o600),
		os.Remove(in("4913")),
		os.Rename(in(file), in(file+"~")),
		os.WriteFile(in(file), nil, 0o600),
		os.WriteFile(in(file), []byte(text), 0o600),
		os.Remove(in(file + "~")),
		os.Remove(in("." + file + ".swp")),
	} {
		require.NoError(n.t, err)
	}
}

func TestManifestFolder_UnchangedSaveRestartsNothing(t *testing.T) {
	t.Parallel()
	inOneGo(t, func(n *node) bool {
		n.write("a.yaml", idlePod("a", ""))
		n.start()
		pod, was := n.run("a")
		for range 3 {
			if !n.quick(func() { n.saveLikeVim("a.yaml", "# saved\n"+idlePod("a", "")) }) {
				return false
			}
			n.write("a.yaml", idlePod("a", "")) // an atomic rename
		}
		requireStays(n.t, pod, was)
		n.requireOps("a", 1, 0, 0)
		n.requireNoProblemLeft()
		return true
	})
}

func TestManifestFolder_EditorSaveIsOneUpdate(t *testing.T) {
	t.Parallel()
	const uid = ", uid: 9d3f1a52-6f0e-4b7e-8a39-51f6d2c0b7e4"
	inOneGo(t, func(n *node) bool {
		n.write("a.yaml", idlePod("a", uid))
		n.start()
		pod, was := n.run("a")
		if !n.quick(func() { n.saveLikeVim("a.yaml", idlePod("a", uid+", labels: {version: two}")) }) {
			return false
		}
		n.waitPod(startTimeout, "a", "to have the new label", func(now *corev1.Pod) bool { return now.Labels["version"] == "two" })
		requireStays(n.t, pod, was)
		n.requireOps("a", 1, 1, 0)
		n.requireNoProblemLeft()
		return true
	})
}

// inOneGo repeats a test on a new node until this machine was fast enough: podsource treats a
// file that is missing for 50 ms as removed.
func inOneGo(t *testing.T, test func(n *node) (done bool)) {
	t.Helper()
	for i := range 10 {
		done := false
		t.Run(fmt.Sprintf("try-%d", i), func(t *testing.T) { done = test(newNode(t)) })
		if done || t.Failed() {
			return
		}
	}
	t.Fatal("this machine was never quick enough")
}

// quick reports whether do took less than 40 ms.
func (n *node) quick(do func()) bool {
	n.t.Helper()
	begin := time.Now()
	do()
	took := time.Since(begin)
	n.t.Logf("the file was missing for at most %v", took.Round(time.Millisecond))
	return took < 40*time.Millisecond
}

func TestManifestFolder_ReplacedFileTerminatesOnlyItsPod(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write("a.yaml", idlePod("a", ""))
	n.write("b.yaml", idlePod("b", ""))
	n.start()
	n.waitRunning("a")
	pod, was := n.run("b")
	n.remove("a.yaml")
	require.NoError(t, os.Mkdir(filepath.Join(n.manifests, "a.yaml"), 0o755))
	n.waitGone(20*time.Second, "a")
	requireStays(t, pod, was)
	n.requireOps("a", 1, 0, 1)
	n.requireOps("b", 1, 0, 0)
}

func TestManifestFolder_MissingFolderTerminatesNothing(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write("a.yaml", idlePod("a", ""))
	n.start()
	pod, was := n.run("a")

	require.NoError(t, os.Rename(n.manifests, n.manifests+".away"))
	waitFor(t, 10*time.Second, "the problem to be reported", func() (string, bool) {
		return n.output.String(), n.output.linesWith("folder cannot be read") == 1
	})
	requireStays(t, pod, was)
	require.NoError(t, os.Mkdir(n.manifests+".next", 0o755))
	for _, name := range []string{"a", "b"} {
		require.NoError(t, os.WriteFile(filepath.Join(n.manifests+".next", name+".yaml"), []byte(idlePod(name, "")), 0o600))
	}
	require.NoError(t, os.Rename(n.manifests+".next", n.manifests))
	n.waitRunning("b")
	requireStays(t, pod, was)
	n.write("c.yaml", idlePod("c", "")) // the agent must watch the new directory, too
	begin := time.Now()
	waitFor(t, 10*time.Second, "the agent to read the manifest of c", func() (string, bool) {
		return n.output.String(), n.output.linesWith("op=ADD pod=default/c-") == 1
	})
	t.Logf("from the manifest to the operation: %v, polled every %v", time.Since(begin).Round(time.Millisecond), pollPeriod)
	n.waitRunning("c")
	n.requireOps("a", 1, 0, 0)
	require.Equal(t, 1, n.output.linesWith("could not use a manifest, will use its last valid version if there is one"), "the problem must be logged once")
	require.Equal(t, 1, n.output.linesWith("a problem with a manifest was resolved"), "the resolution must be logged once")
}

func TestManifestFolder_RecreatedFolderTerminatesNothing(t *testing.T) {
	t.Parallel()
	inOneGo(t, func(n *node) bool {
		n.write("a.yaml", idlePod("a", ""))
		n.start()
		pod, was := n.run("a")
		again := func() {
			require.NoError(n.t, os.RemoveAll(n.manifests))
			require.NoError(n.t, os.Mkdir(n.manifests, 0o755))
			n.write("a.yaml", idlePod("a", ""))
		}
		for range 3 {
			if !n.quick(again) {
				return false
			}
			requireStays(n.t, pod, was)
		}
		n.write("b.yaml", idlePod("b", ""))
		n.waitRunning("b")
		left := bed.traces(n.t, pod)
		n.remove("a.yaml")
		n.waitGone(20*time.Second, "a")
		bed.requireGone(n.t, left)
		n.requireOps("a", 1, 0, 1)
		return true
	})
}

func TestManifestFolder_AddsTwoHundredManifestsOnceEach(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.write("first.yaml", idlePod("first", ""))
	n.start()
	pod, was := n.run("first")
	for i := range 200 {
		text := idlePod(fmt.Sprintf("p%03d", i), "")
		if i%50 != 0 { // the agent rejects most pods, because the machine is small
			text += "  os: {name: windows}\n"
		}
		require.NoError(t, os.WriteFile(filepath.Join(n.manifests, fmt.Sprintf("p%03d.yaml", i)), []byte(text), 0o600))
	}
	for i := range 4 {
		n.waitRunning(fmt.Sprintf("p%03d", i*50))
	}
	waitFor(t, startTimeout, "all manifests to be read", func() (string, bool) {
		pods, err := n.agent.pods()
		return fmt.Sprint(len(pods), err), len(pods) == 201
	})
	waitFor(t, startTimeout, "the operations to be logged", func() (string, bool) {
		adds := n.output.linesWith(" op=ADD ") // the last lines may arrive after the pods
		return fmt.Sprint(adds), adds >= 201
	})
	for i := range 200 {
		n.requireOps(fmt.Sprintf("p%03d", i), 1, 0, 0)
	}
	n.requireNoProblemLeft()
	requireStays(t, pod, was)
}

// manifestSite serves one text at its URL. It fails while the text is empty.
type manifestSite struct {
	*httptest.Server
	text  atomic.Value
	asked atomic.Int32
}

func newManifestSite(t *testing.T) *manifestSite {
	t.Helper()
	s := &manifestSite{}
	s.text.Store("")
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.asked.Add(1)
		if text, ok := s.text.Load().(string); ok && text != "" {
			fmt.Fprint(w, text)
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(s.Close)
	return s
}

func TestManifestURL_FailingServerTerminatesNothing(t *testing.T) {
	t.Parallel()
	n, site := newNode(t), newManifestSite(t)
	site.text.Store(idlePod("served", ""))
	n.write("own.yaml", idlePod("own", ""))
	n.start("--manifest-url", site.URL)
	served, was := n.run("served")
	n.waitRunning("own")
	n.agent.stop(t)

	// Now the server fails from the start. The agent must keep the pods on the node, because
	// it does not know whether they are still desired.
	site.text.Store("")
	asked := site.asked.Load()
	n.start("--manifest-url", site.URL)
	n.waitRunning("own")
	waitFor(t, 20*time.Second, "the agent to query the server again", func() (string, bool) {
		return fmt.Sprint(site.asked.Load() - asked), site.asked.Load() > asked+2
	})
	requireStays(t, served, was)
	_, body, err := n.agent.get("/healthz?verbose")
	require.NoError(t, err)
	require.Contains(t, body, "503 Service Unavailable")
	n.remove("own.yaml") // the agent still terminates pods whose manifest file was removed
	n.waitGone(20*time.Second, "own")
	requireStays(t, served, was)
	require.Equal(t, 1, n.output.linesWith("the server answered 503"), "repeated failures must be logged once")

	site.text.Store(idlePod("served", ""))
	n.waitRunning("served")
	requireStays(t, served, was)
	n.requireOps("served", 2, 0, 0) // one operation per agent process
	n.requireOps("own", 2, 0, 1)
	left := bed.traces(t, served)
	site.text.Store(`{"apiVersion":"v1","kind":"PodList","items":[]}`)
	n.waitGone(60*time.Second, "served")
	bed.requireGone(t, left)
}

func TestManifestSources_SamePodRunsOnce(t *testing.T) {
	t.Parallel()
	n, site := newNode(t), newManifestSite(t)
	site.text.Store(idlePod("other", ""))
	n.write("a.yaml", idlePod("a", ""))
	n.start("--manifest-url", site.URL)
	pod, was := n.run("a")
	n.waitRunning("other")
	site.text.Store(idlePod("a", "") + "---\n" + idlePod("other", ""))
	waitFor(t, 60*time.Second, "the conflict to be reported", func() (string, bool) {
		return n.output.String(), n.output.linesWith("nameHolder=file") == 1
	})
	requireStays(t, pod, was)
	n.requireOps("a", 1, 0, 0)

	// After the manifest file is removed, its pod terminates before the server's pod starts.
	n.remove("a.yaml")
	next := n.waitPod(startTimeout, "a", "to be the pod from the server", func(now *corev1.Pod) bool {
		return now.UID != pod.UID && running(now)
	})
	require.Equal(t, "http", next.Annotations["kubernetes.io/config.source"])
	require.Len(t, bed.instances(t, podLabels(next)), 1)
	n.requireOps("a", 2, 0, 1)
	n.requireOps("other", 1, 0, 0)
}
