package oomwatch

import (
	"context"
	"fmt"
	"io"
	"os"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/euank/go-kmsg-parser/kmsgparser"
	"github.com/google/cadvisor/utils/oomparser"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	_ "k8s.io/kubernetes/pkg/kubelet/oom" // the linker must include the function below

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// kmsgReader has the fields of the kubelet's reader of /dev/kmsg.
type kmsgReader struct {
	log    kmsgparser.Logger
	reader kmsgparser.ReadSeekCloser
	boot   time.Time
}

//go:linkname parse github.com/euank/go-kmsg-parser/kmsgparser.(*parser).Parse
func parse(r *kmsgReader) <-chan kmsgparser.Message

// kubeletWatcher has the fields of the kubelet's watcher.
type kubeletWatcher struct {
	recorder record.EventRecorderLogger
	streamer streamer
}

type streamer interface {
	StreamOoms(out chan<- *oomparser.OomInstance)
}

//go:linkname start k8s.io/kubernetes/pkg/kubelet/oom.(*realWatcher).Start
func start(w *kubeletWatcher, ctx context.Context, ref *corev1.ObjectReference) error

// kmsgParser passes a log to the kubelet's parser. The other methods are never called.
type kmsgParser struct {
	kmsgparser.Parser

	reader *kmsgReader
}

func (p *kmsgParser) Parse() <-chan kmsgparser.Message { return parse(p.reader) }

func (p *kmsgParser) Close() error { return nil }

// kubeletRun is the kubelet's side of one scenario.
type kubeletRun struct {
	// records is the input of the reader. Closing it ends the log.
	records chan string

	mu    sync.Mutex
	facts judge.Facts
}

// note changes the facts.
func (r *kubeletRun) note(change func(judge.Facts)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(r.facts)
}

// take returns the facts of a step.
func (r *kubeletRun) take() judge.Facts {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.facts
	r.facts = judge.Facts{}
	return f
}

// overrun stands for records that were overwritten.
const overrun = "overrun"

// Read implements [io.Reader] as a file of /dev/kmsg does.
func (r *kubeletRun) Read(p []byte) (int, error) {
	record, open := <-r.records
	if !open {
		return 0, io.EOF
	}
	if record == overrun {
		return 0, &os.PathError{Op: "read", Path: "/dev/kmsg", Err: syscall.EPIPE}
	}
	return copy(p, record), nil
}

// Seek implements [io.Seeker].
func (r *kubeletRun) Seek(int64, int) (int64, error) { return 0, nil }

// Close implements [io.Closer].
func (r *kubeletRun) Close() error { return nil }

// tap forwards the results of the parser to the kubelet's watcher, and records them.
type tap struct {
	parser *oomparser.OomParser
	note   func(*oomparser.OomInstance)
}

// last is the process name of a final instance. The kubelet's watcher cannot be stopped.
// Therefore the recorder ends the watcher's goroutine when it receives the event of this
// instance.
const last = "the last"

func (t *tap) StreamOoms(out chan<- *oomparser.OomInstance) {
	found := make(chan *oomparser.OomInstance)
	go func() {
		defer close(found)
		t.parser.StreamOoms(found)
	}()
	for instance := range found {
		t.note(instance)
		out <- instance
	}
	out <- &oomparser.OomInstance{Pid: 1, ProcessName: last, VictimContainerName: "/"}
}

// recorder records events.
type recorder struct {
	note func(about, message string)
}

// WithLogger implements the kubelet's recorder.
func (r *recorder) WithLogger(klog.Logger) record.EventRecorderLogger { return r }

// Event implements the recorder.
func (r *recorder) Event(object runtime.Object, kind, reason, message string) {
	if message == fmt.Sprintf("System OOM encountered, victim process: %s, pid: 1", last) {
		goruntime.Goexit()
	}
	about := "event"
	if pod, is := object.(*corev1.Pod); is {
		about = "pod event"
		if kind != corev1.EventTypeWarning || reason != "OOMKilled" || pod.UID != podUID {
			message = kind + " " + reason + " of " + string(pod.UID) + ": " + message
		}
	} else {
		message = kind + " " + reason + " " + message
	}
	r.note(about, message)
}

// Eventf implements the recorder.
func (r *recorder) Eventf(object runtime.Object, kind, reason, format string, args ...any) {
	r.Event(object, kind, reason, fmt.Sprintf(format, args...))
}

// AnnotatedEventf implements the recorder.
func (r *recorder) AnnotatedEventf(object runtime.Object, _ map[string]string, kind, reason, format string, args ...any) {
	r.Eventf(object, kind, reason, format, args...)
}

// listen starts the kubelet's watcher on a log.
func listen(t *testing.T, began time.Time) *kubeletRun {
	t.Helper()
	r := &kubeletRun{records: make(chan string, 1000), facts: judge.Facts{}}
	reader := &kmsgReader{log: &kmsgparser.StandardLogger{}, reader: r, boot: began}
	parser := (*oomparser.OomParser)(unsafe.Pointer(&struct{ kmsgparser.Parser }{&kmsgParser{reader: reader}}))
	watcher := &kubeletWatcher{
		recorder: &recorder{func(about, message string) { r.note(func(f judge.Facts) { addEvent(f, about, message) }) }},
		streamer: &tap{parser: parser, note: func(k *oomparser.OomInstance) {
			r.note(func(f judge.Facts) { addInstance(f, k, began) })
		}},
	}
	if err := start(watcher, t.Context(), &corev1.ObjectReference{Kind: "Node", Name: "node"}); err != nil {
		t.Error(err)
	}
	return r
}

// log adds records to the log.
func (r *kubeletRun) log(records []Record) {
	for _, record := range records {
		if record.Lost > 0 {
			r.records <- overrun
			continue
		}
		r.records <- record.Text
	}
	synctest.Wait()
}

func playKubelet(t *testing.T, w *World) (all []judge.Facts) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		r, plain := listen(t, began), listen(t, began)
		for i, s := range w.Steps {
			r.log(s.Records)
			facts := r.take()
			plain.log(s.plain())
			if told := plain.take(); i > 0 || !w.History {
				s.addPlain(facts, told)
			}
			w.addMore(facts, i)
			all = append(all, facts)
		}
		close(r.records)
		close(plain.records)
	})
	return all
}

// addInstance adds a kill to the facts. The kubelet's names of the two cgroups are swapped.
func addInstance(f judge.Facts, k *oomparser.OomInstance, began time.Time) {
	name := "kill " + strconv.Itoa(k.Pid)
	f[name+"/process"] += k.ProcessName
	f[name+"/victim cgroup"] += k.ContainerName
	f[name+"/limit cgroup"] += k.VictimContainerName
	f[name+"/constraint"] += k.Constraint
	f[name+"/time"] += fmt.Sprint(k.TimeOfDeath.Sub(began).Round(time.Millisecond))
}

// addEvent adds an event to the facts, named by its process. Several events of the same
// process are sorted by their texts.
func addEvent(f judge.Facts, about, message string) {
	pid := message
	for i := len(message) - 1; i >= 0 && '0' <= message[i] && message[i] <= '9'; i-- {
		pid = message[i:]
	}
	name := about + " about " + pid
	if len(pid) == len(message) {
		name = about + " without a process"
	}
	all := []string{message}
	if f[name] != "" {
		all = append(all, strings.Split(f[name], "; ")...)
	}
	slices.Sort(all)
	f[name] = strings.Join(all, "; ")
}
