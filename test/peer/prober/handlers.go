package prober

import (
	"context"
	"fmt"
	"hash/fnv"
	"net/http"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubecontainer "k8s.io/kubernetes/pkg/kubelet/container"
	kubeletprober "k8s.io/kubernetes/pkg/kubelet/prober"
	"k8s.io/kubernetes/pkg/kubelet/prober/results"
	kubeletprobe "k8s.io/kubernetes/pkg/probe"
	kubelethttp "k8s.io/kubernetes/pkg/probe/http"
	"k8s.io/utils/clock"

	"github.com/kubeparts/kubeparts/prober"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// tries is how often the kubelet tries a run that ends in an error. prober/steps covers
// several tries; in these comparisons the next try would get another response.
const tries = 1

//go:linkname runProbeWithRetries k8s.io/kubernetes/pkg/kubelet/prober.(*prober).runProbeWithRetries
func runProbeWithRetries(p unsafe.Pointer, ctx context.Context, probeType int, spec *corev1.Probe, pod *corev1.Pod, status corev1.PodStatus, c corev1.Container, id kubecontainer.ContainerID, retries int) (kubeletprobe.Result, string, error)

//go:linkname probeAndRecord k8s.io/kubernetes/pkg/kubelet/prober.(*prober).probe
func probeAndRecord(p unsafe.Pointer, ctx context.Context, probeType int, pod *corev1.Pod, status corev1.PodStatus, c corev1.Container, id kubecontainer.ContainerID) (results.Result, error)

// onePod returns a pod with one container and a readiness probe.
func onePod(probe *corev1.Probe, ports []corev1.ContainerPort, env ...corev1.EnvVar) *corev1.Pod {
	return &corev1.Pod{
		TypeMeta:   metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: podUID},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "a", ReadinessProbe: probe, Ports: ports, Env: env}}},
	}
}

// A kubeletProber is the part of the kubelet's manager that runs probes.
type kubeletProber struct {
	self   reflect.Value
	events *kubelet // receives the events
}

func newKubeletProber(runner kubecontainer.CommandRunner) kubeletProber {
	events := &kubelet{}
	m := kubeletprober.NewManager(nil, nil, nil, nil, runner, recorder{k: events})
	return kubeletProber{reflect.ValueOf(m).Elem().FieldByName("prober"), events}
}

// warning returns the event of a run by HTTP that ended in a warning with a text.
func (p kubeletProber) warning(pod *corev1.Pod, text string) string {
	field := (*kubelethttp.Prober)(unsafe.Pointer(p.self.Elem().FieldByName("http").UnsafeAddr()))
	was := *field
	*field = warned(text)
	defer func() { *field = was }()
	p.events.events = nil
	_, _ = probeAndRecord(p.self.UnsafePointer(), context.Background(), 1, pod, corev1.PodStatus{PodIP: podIP}, pod.Spec.Containers[0],
		kubecontainer.ContainerID{Type: "containerd", ID: "id1"}) // only the event is used
	return strings.Join(p.events.events, "\n")
}

// warned is a handler whose probes end in a warning.
type warned string

func (w warned) Probe(*http.Request, time.Duration) (kubeletprobe.Result, string, error) {
	return kubeletprobe.Warning, string(w), nil
}

// run executes a probe once, as a worker does.
func (p kubeletProber) run(pod *corev1.Pod, ip string) (result, text string) {
	c := pod.Spec.Containers[0]
	r, output, err := runProbeWithRetries(p.self.UnsafePointer(), context.Background(), 1, c.ReadinessProbe, pod,
		corev1.PodStatus{PodIP: ip}, c, kubecontainer.ContainerID{Type: "containerd", ID: "id1"}, tries)
	if err != nil {
		return string(kubeletprobe.Unknown), err.Error() // the worker ignores the result
	}
	return string(r), output
}

// An ourProber runs one probe with our manager.
type ourProber struct {
	t     *testing.T
	m     *prober.Manager
	clock clock.PassiveClock
	// due is when the next run is due: at the start of the container, and later whenever run
	// is called.
	due *time.Time
}

func newOurProber(t *testing.T, cfg prober.Config, pod *corev1.Pod, ip string) ourProber {
	t.Helper()
	began := time.Now()
	if cfg.Clock != nil {
		began = cfg.Clock.Now()
	}
	cfg.Lookup = func(types.UID, string) (prober.Target, bool) {
		return prober.Target{ID: "id1", State: prober.Running, StartedAt: began, PodIP: ip}, true
	}
	m, err := prober.New(cfg)
	require.NoError(t, err)
	m.AddPod(pod)
	if cfg.Clock == nil {
		cfg.Clock = clock.RealClock{}
	}
	return ourProber{t: t, m: m, clock: cfg.Clock, due: &began}
}

// run makes one run.
func (p ourProber) run() (result, text string) {
	key := prober.Key{PodUID: podUID, Container: "a", Kind: prober.Readiness}
	began := p.clock.Now()
	r, err := p.m.Probe(context.Background(), key)
	require.NoError(p.t, err)
	text = r.Output
	if r.Err != nil {
		text = r.Err.Error()
	}
	// The report about a run and its history must match the run.
	require.Equal(p.t, began, r.At)
	require.Equal(p.t, p.clock.Now().Sub(began), r.Duration)
	require.Equal(p.t, max(0, began.Sub(*p.due)), r.Late)
	*p.due = p.clock.Now().Add(time.Hour)
	all := p.m.History(key)
	require.NotEmpty(p.t, all)
	require.Equal(p.t, prober.Record{At: r.At, Duration: r.Duration, Outcome: r.Outcome, Output: text}, all[len(all)-1])
	return r.Outcome.String(), text
}

func (p ourProber) close() { p.m.RemovePod(podUID) }

// found returns the facts of a run.
func found(result, text string, requests []string) judge.Facts {
	f := judge.Facts{"result": result, "text": short(timeoutText(text))}
	for i, r := range requests {
		f[fmt.Sprintf("request %d", i+1)] = r
	}
	return f
}

// timeoutText replaces the texts of net/http for a timeout, which vary at random, with one
// text, and shortens the quoted part of a response that is not HTTP.
func timeoutText(s string) string {
	s = strings.ReplaceAll(s, "\u00a0", " ") // protobuf uses one of the two at random
	s = regexp.MustCompile(`(: malformed [^"]*"[^"]{0,60})[^"]*`).ReplaceAllString(s, "$1")
	s = regexp.MustCompile(`^(Get "[^"]*"): (dial tcp \S*: |net/http: )?(request canceled|context deadline exceeded)( while waiting for connection)?( \(Client\.Timeout (exceeded while awaiting headers|or context cancellation while reading body)\))?$`).
		ReplaceAllString(s, "$1: timed out")
	return regexp.MustCompile(`^(net/http: request canceled|context deadline exceeded)( \(Client\.Timeout or context cancellation while reading body\))?$`).
		ReplaceAllString(s, "timed out in the body")
}

// short returns a text, or its beginning, length and checksum.
func short(s string) string {
	const most = 400
	if len(s) <= most {
		return s
	}
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(s)) // it never fails
	return fmt.Sprintf("%s… (%d bytes, %x)", s[:most], len(s), sum.Sum64())
}
