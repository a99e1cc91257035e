package hooks

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A world is a container with a hook, and the results of the hook.
type world struct {
	Pod       *corev1.Pod
	Container *corev1.Container
	Handler   *corev1.LifecycleHandler
	IPs       []string

	// Output and Error are the results of the command.
	Output, Error string
	// Answers are the responses of the server, one for each request.
	Answers []answer
	// Cancelled is when the caller cancels the hook; 0 means never.
	Cancelled time.Duration
}

// An answer is the HTTP client's result for one request.
type answer struct {
	Plain  bool // the server uses plain HTTP
	Error  string
	Length int64 // as in its header; -1 for none
	Body   int
	Status int
	Broken bool // the connection breaks within the body
}

func drawWorld(d *judge.Draw) *world {
	w := &world{
		Pod:       &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "uid"}},
		Container: &corev1.Container{Name: "main"},
	}
	names := []string{"web", "admin", "8081", ""}
	judge.Shuffle(d, names)
	for i := range d.Int(4) {
		w.Container.Ports = append(w.Container.Ports, corev1.ContainerPort{Name: names[i], ContainerPort: judge.Pick(d, int32(8080+i), 0, 70000), HostPort: 99})
	}
	w.IPs = judge.Pick(d, []string{"10.0.0.7"}, []string{"fd00::7", "10.0.0.7"}, nil)
	w.Handler = &corev1.LifecycleHandler{}
	switch d.Int(8) {
	case 0, 1, 2, 3, 4:
		w.Handler.HTTPGet = drawGet(d)
	case 5:
		w.Handler.Exec = &corev1.ExecAction{Command: judge.Pick(d, []string{"sh", "-c", "echo \"x\""}, []string{"stop"}, nil)}
		w.Output, w.Error = judge.Pick(d, "", "said \"this\"\n"), judge.Pick(d, "", "exit status 3", "deadline exceeded")
	case 6:
		w.Handler.Sleep = &corev1.SleepAction{Seconds: judge.Pick(d, int64(5), 0, 1, 60)}
		w.Cancelled = judge.Pick(d, 0, 500*time.Millisecond, 6*time.Second)
	default:
		w.Handler.TCPSocket = judge.Maybe(d, 50, func() corev1.TCPSocketAction { return corev1.TCPSocketAction{Port: intstr.FromInt32(80)} })
	}
	for range 2 {
		w.Answers = append(w.Answers, drawAnswer(d))
	}
	return w
}

func drawGet(d *judge.Draw) *corev1.HTTPGetAction {
	g := &corev1.HTTPGetAction{
		Path:   judge.Pick(d, "/stop", "", "stop", "/a?b=c&d", "/a b", "/%zz", "//x/y", "mailto:x", "http://other/x", "/x#y", "/ü", "?q", ":x"),
		Port:   judge.Pick(d, intstr.FromInt32(80), intstr.FromString("web"), intstr.FromString("8081"), intstr.FromString("admin"), intstr.FromString("none"), intstr.FromString("70000"), intstr.FromInt32(0), intstr.FromInt32(65535), intstr.FromInt32(65536), intstr.FromInt32(-1)),
		Scheme: judge.Pick(d, corev1.URISchemeHTTP, "", corev1.URISchemeHTTPS),
	}
	if g.Path == "mailto:x" { // a separate difference that must not be combined with those of HTTPS
		g.Scheme = corev1.URISchemeHTTP
	}
	if d.Chance(40) {
		g.Host = judge.Pick(d, "example", "127.0.0.1", "::1")
		if g.Path != "mailto:x" && d.Chance(20) {
			g.Host = "a/b" // an invalid address
		}
	}
	for range d.Int(4) {
		g.HTTPHeaders = append(g.HTTPHeaders, corev1.HTTPHeader{
			Name:  judge.Pick(d, "X-One", "x-one", "Host", "User-Agent", "Accept", "accept", "Authorization", "HOST"),
			Value: judge.Pick(d, "a", "", "b"),
		})
	}
	return g
}

func drawAnswer(d *judge.Draw) (a answer) {
	a.Status = judge.Pick(d, 200, 500, 302)
	a.Body = judge.Pick(d, 0, 5, 10<<10, 10<<10+1, 20<<10)
	a.Length = judge.Pick(d, int64(a.Body), -1, 10<<10, 10<<10+1)
	a.Broken = d.Chance(15)
	switch {
	case d.Chance(35):
		a.Plain = true
	case d.Chance(20):
		a.Error = "connection refused"
	}
	return a
}

// headers are all headers of a request, sorted by name.
func headers(all map[string][]string, names []string) string {
	var text []string
	for _, name := range names {
		text = append(text, name+": "+strings.Join(all[name], " | "))
	}
	return strings.Join(text, "; ")
}
