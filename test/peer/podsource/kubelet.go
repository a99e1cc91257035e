package podsource

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	_ "unsafe" // linkname

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	podutil "k8s.io/kubernetes/pkg/api/pod"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1conversion "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/kubelet/config"
	kubetypes "k8s.io/kubernetes/pkg/kubelet/types"
	"k8s.io/kubernetes/pkg/util/parsers"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// The kubelet does not export a single step of its sources. The following are its unexported
// functions, with types of the same layout.
type (
	sourceFile   struct{}
	sourceUpdate struct{ Pods []*corev1.Pod }
	podStorage   struct{}
	sourceURL    struct {
		url      string
		_        http.Header // header
		nodeName types.NodeName
		updates  chan<- sourceUpdate
		_        []byte // data
		_        int    // failureLogs
		client   *http.Client
	}
	startup interface {
		ObservedPodOnWatch(pod *corev1.Pod, when time.Time)
	}
)

//go:linkname newSourceFile k8s.io/kubernetes/pkg/kubelet/config.newSourceFile
func newSourceFile(path string, node types.NodeName, period time.Duration, updates chan<- sourceUpdate) *sourceFile

//go:linkname listConfig k8s.io/kubernetes/pkg/kubelet/config.(*sourceFile).listConfig
func listConfig(s *sourceFile, logger klog.Logger) error

//go:linkname extractFromURL k8s.io/kubernetes/pkg/kubelet/config.(*sourceURL).extractFromURL
func extractFromURL(s *sourceURL, logger klog.Logger) error

//go:linkname newPodStorage k8s.io/kubernetes/pkg/kubelet/config.newPodStorage
func newPodStorage(updates chan<- kubetypes.PodUpdate, recorder record.EventRecorderLogger, observer startup) *podStorage

//go:linkname merge k8s.io/kubernetes/pkg/kubelet/config.(*podStorage).Merge
func merge(s *podStorage, ctx context.Context, source string, update sourceUpdate) error

//go:linkname applyDefaults k8s.io/kubernetes/pkg/kubelet/config.applyDefaults
func applyDefaults(logger klog.Logger, pod *core.Pod, source string, isFile bool, node types.NodeName) error

//go:linkname tryDecodePodList k8s.io/kubernetes/pkg/kubelet/config.tryDecodePodList
func tryDecodePodList(logger klog.Logger, data []byte, defaults func(klog.Logger, *core.Pod) error) (parsed bool, pods corev1.PodList, err error)

//go:linkname tryDecodeSinglePod k8s.io/kubernetes/pkg/kubelet/config.tryDecodeSinglePod
func tryDecodeSinglePod(logger klog.Logger, data []byte, defaults func(klog.Logger, *core.Pod) error) (parsed bool, pod *corev1.Pod, err error)

// The package is linked for its functions above.
var _ = config.NewPodConfig

// kubeletSide plays a world with the kubelet's source and merge.
func kubeletSide(t *testing.T, w *world) (all []judge.Facts) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		dir := folder(t)
		k := &kubelet{w: w, url: "http://host/pods", updates: make(chan sourceUpdate, 20), ops: make(chan kubetypes.PodUpdate, 20), pods: map[types.UID]*corev1.Pod{}}
		k.file = newSourceFile(filepath.Join(dir, "manifests"), types.NodeName(w.Node), time.Second, k.updates)
		k.server = &sourceURL{url: k.url, nodeName: types.NodeName(w.Node), updates: k.updates, client: &http.Client{Transport: roundTripper(k.answer)}}
		k.storage = newPodStorage(k.ops, record.NewFakeRecorder(1000), ignore{})
		m := newMemory()
		for i, s := range w.Steps {
			time.Sleep(time.Duration(s.After) * time.Second)
			k.step = s
			w.would = append(w.would, map[string]judge.Facts{})
			f := judge.Facts{}
			if !w.HTTP {
				write(t, dir, s)
			}
			k.read(t, f)
			m.pods(f, w, i, slices.SortedFunc(maps.Values(k.pods), func(a, b *corev1.Pod) int {
				return strings.Compare(a.Namespace+"/"+a.Name+string(a.UID), b.Namespace+"/"+b.Name+string(b.UID))
			}))
			k.problems(t, f, dir)
			all = append(all, f)
		}
	})
	return all
}

type kubelet struct {
	w       *world
	step    step
	url     string
	file    *sourceFile
	server  *sourceURL
	storage *podStorage
	updates chan sourceUpdate
	ops     chan kubetypes.PodUpdate
	pods    map[types.UID]*corev1.Pod
}

type ignore struct{}

func (ignore) ObservedPodOnWatch(*corev1.Pod, time.Time) {}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// answer is the server of both sides.
func (k *kubelet) answer(*http.Request) (*http.Response, error) { return answer(k.step) }

func answer(s step) (*http.Response, error) {
	if s.Status == 0 {
		return nil, fmt.Errorf("connection refused")
	}
	return &http.Response{Status: fmt.Sprint(s.Status), StatusCode: s.Status, Body: io.NopCloser(strings.NewReader(s.Files[0].text())), Header: http.Header{}}, nil
}

// read runs one pass of the source and its consequences.
func (k *kubelet) read(t *testing.T, f judge.Facts) {
	t.Helper()
	source := kubetypes.FileSource
	if k.w.HTTP {
		source = kubetypes.HTTPSource
		_ = extractFromURL(k.server, klog.Background())
	} else {
		_ = listConfig(k.file, funcr.New(func(_, line string) { k.noteEntry(f, line) }, funcr.Options{}))
	}
	for len(k.updates) > 0 {
		require.NoError(t, merge(k.storage, t.Context(), source, <-k.updates))
	}
	for len(k.ops) > 0 {
		op := <-k.ops
		for _, pod := range op.Pods {
			if op.Op == kubetypes.REMOVE {
				delete(k.pods, pod.UID)
			} else {
				k.pods[pod.UID] = pod
			}
		}
	}
}

// noteEntry adds the kubelet's log message about a directory entry that is not a file. It omits
// the message about a subdirectory, because the kubelet then continues.
func (k *kubelet) noteEntry(f judge.Facts, line string) {
	for _, e := range k.step.Entries {
		if strings.Contains(line, "/"+e.Name+`"`) && !strings.Contains(line, "is a directory") {
			f["file "+e.Name+" text"] = "refused"
		}
	}
}

// problems adds the problems of each document.
func (k *kubelet) problems(t *testing.T, f judge.Facts, dir string) {
	t.Helper()
	for _, file := range k.step.Files {
		if !readsStep(k.w, k.step) || strings.HasPrefix(file.Name, ".") {
			continue
		}
		source := filepath.Join(dir, "manifests", file.Name)
		if k.w.HTTP {
			source = k.url
		}
		if !file.whole() || len(file.Docs) == 0 {
			_, _, err := k.decode(file.text(), source)
			if err != nil && k.w.HTTP {
				_, _, err = tryDecodePodList(klog.Background(), []byte(file.text()), k.defaults(source))
			}
			if err != nil {
				f["file "+file.Name+" text"] = "refused"
			}
			for i := range file.Docs {
				k.document(t, judge.Facts{}, documentPrefix(file.Name, i), file.documentText(i), source)
			}
			continue
		}
		for i := range file.Docs {
			prefix := documentPrefix(file.Name, i)
			if len(strictOf(file.Docs[i])) > 0 {
				if _, _, err := k.decode(file.documentText(i), source); err != nil {
					f[prefix+"verdict"] = "refused"
				}
				k.document(t, judge.Facts{}, prefix, file.documentText(i), source)
				continue
			}
			k.document(t, f, prefix, file.documentText(i), source)
		}
	}
}

func (k *kubelet) defaults(source string) func(klog.Logger, *core.Pod) error {
	return func(logger klog.Logger, pod *core.Pod) error {
		return applyDefaults(logger, pod, source, !k.w.HTTP, types.NodeName(k.w.Node))
	}
}

func (k *kubelet) decode(text, source string) (parsed bool, pod *corev1.Pod, err error) {
	return tryDecodeSinglePod(klog.Background(), []byte(text), k.defaults(source))
}

// document adds the problems of one document.
func (k *kubelet) document(t *testing.T, f judge.Facts, prefix, text, source string) {
	t.Helper()
	parsed, _, err := k.decode(text, source)
	if !parsed {
		f[prefix+"decode"] = "refused"
		return
	}
	data, yamlErr := utilyaml.ToJSON([]byte(text))
	require.NoError(t, yamlErr)
	obj, decodeErr := runtime.Decode(legacyscheme.Codecs.UniversalDecoder(), data)
	require.NoError(t, decodeErr)
	pod := obj.(*core.Pod)
	if pod.Name == "" {
		f[prefix+"problem metadata.name"] = "yes"
		return
	}
	require.NoError(t, k.defaults(source)(klog.Background(), pod))
	k.remember(t, prefix, pod)
	errs := validation.ValidatePodCreate(pod, podutil.GetValidationOptionsFromPodSpecAndMeta(&pod.Spec, nil, &pod.ObjectMeta, nil))
	if len(errs) > 0 {
		// The order of the errors depends on maps.
		require.Len(t, err.Error(), len(fmt.Sprintf("invalid pod: %v", errs)))
	}
	addProblems(f, prefix, errs)
	addImages(f, prefix+"image spec.initContainers", pod.Spec.InitContainers)
	addImages(f, prefix+"image spec.containers", pod.Spec.Containers)
	if _, reference, _ := podutil.HasAPIObjectReference(pod); reference != "" && len(errs) == 0 {
		f[prefix+"reference"] = reference
	}
}

// addImages adds a fact for each image that the kubelet cannot pull, because it is not a
// valid reference.
func addImages(f judge.Facts, prefix string, containers []core.Container) {
	for i, c := range containers {
		if _, _, _, err := parsers.ParseImageName(c.Image); err != nil && c.Image != "" {
			f[fmt.Sprintf("%s[%d]", prefix, i)] = "no reference"
		}
	}
}

// remember records the pod as the kubelet decodes it.
func (k *kubelet) remember(t *testing.T, prefix string, pod *core.Pod) {
	t.Helper()
	v1pod := &corev1.Pod{}
	require.NoError(t, corev1conversion.Convert_core_Pod_To_v1_Pod(pod, v1pod, nil))
	v1pod = v1pod.DeepCopy()
	v1pod.Annotations[sourceAnnotation] = kubetypes.FileSource
	if k.w.HTTP {
		v1pod.Annotations[sourceAnnotation] = kubetypes.HTTPSource
	}
	at := len(k.w.would) - 1
	facts := judge.Facts{}
	newMemory().pods(facts, k.w, at, []*corev1.Pod{v1pod})
	k.w.would[at][prefix] = facts
}

// documentPrefix begins the facts about a document.
func documentPrefix(name string, i int) string { return fmt.Sprintf("file %s#%d ", name, i) }

// readsStep reports whether there is something to read in a step.
func readsStep(w *world, s step) bool {
	if w.HTTP {
		return s.Status == http.StatusOK
	}
	return !s.Missing
}

// folder returns a folder for the manifests of one side.
func folder(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "podsource")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(dir)) })
	return dir
}
