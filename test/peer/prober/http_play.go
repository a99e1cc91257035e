package prober

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/component-base/version"

	"github.com/kubeparts/kubeparts/prober"
	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// playWebKubelet plays a world against the kubelet's handler of HTTP probes.
func playWebKubelet(t *testing.T, w web) (all []judge.Facts) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, w)
		p := newKubeletProber(nil)
		transport := (*http.Transport)(p.self.Elem().FieldByName("http").Elem().FieldByName("transport").UnsafePointer())
		transport.DialContext = n.dial
		pod, _ := w.pod()
		for _, r := range w.Runs {
			began := time.Now()
			time.Sleep(r.After)
			n.begin(r)
			result, text := p.run(pod, podIP)
			synctest.Wait()
			f := found(result, text, n.seen())
			if result == "warning" {
				f["event"] = short(p.warning(pod, text))
			}
			time.Sleep(webLasts - time.Since(began))
			f["open connections"] = n.open()
			all = append(all, f)
		}
		transport.CloseIdleConnections()
		n.close()
	})
	return all
}

// playWebOurs plays a world against ours.
func playWebOurs(t *testing.T, w web) (all []judge.Facts) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, w)
		pod, _ := w.pod()
		events := &ours{}
		p := newOurProber(t, prober.Config{HistoryBytes: 40000, Events: events, EventPolicy: prober.EventsAlways, Dial: n.dial, UserAgent: agent()}, pod, podIP)
		for _, r := range w.Runs {
			began := time.Now()
			time.Sleep(r.After)
			n.begin(r)
			events.events = nil
			result, text := p.run()
			synctest.Wait()
			f := found(result, text, n.seen())
			if result == "warning" {
				f["event"] = short(strings.Join(events.events, "\n"))
			}
			time.Sleep(webLasts - time.Since(began))
			f["open connections"] = n.open()
			all = append(all, f)
		}
		p.close()
		if open := n.open(); open != "0" {
			all[len(all)-1]["open connections"] += ", and in the end " + open
		}
		n.close()
	})
	return all
}

// webLasts is the duration of a run with all its tries.
const webLasts = 30 * time.Second

// agent returns the kubelet's user agent.
func agent() string {
	v := version.Get()
	return "kube-probe/" + v.Major + "." + v.Minor
}
