package hooks

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

const doc = "lifecycle/doc.go"

type scene = judge.Scene[*world]

func rules() []judge.Rule[*world] {
	return []judge.Rule[*world]{
		{
			Name: "HTTP hook without a pod IP", Class: judge.Deliberate, Doc: doc,
			Sentence: "If the pod has no IP for an HTTP hook, the kubelet logs the whole pod status; this package logs that the pod has no IP.",
			Explains: func(s scene) bool {
				const text = "failed to find networking container: "
				before, _, found := strings.Cut(s.Kubelet, text)
				return s.Fact == "message" && found && len(s.World.IPs) == 0 && s.Ours == before+text+"the pod has no IP"
			},
		},
		{
			Name: "HTTPS hook with failed HTTP fallback", Class: judge.Deliberate, Doc: doc,
			Sentence: "If an HTTPS hook fails with HTTPS and with plain HTTP, the kubelet reports the first error; this package reports both.",
			Explains: func(s scene) bool {
				if s.Fact != "message" || s.World.Handler.HTTPGet == nil || s.KubeletFacts[0]["request 1"] == "" {
					return false
				}
				address := strings.Fields(s.KubeletFacts[0]["request 1"])[1]
				second := &url.Error{Op: "Get", URL: address, Err: fmt.Errorf("%s", s.World.Answers[1].Error)}
				return s.Ours == s.Kubelet+"\n"+second.Error()
			},
		},
		{
			Name: "HTTP hook path with a scheme", Class: judge.KubeletDefect, Doc: doc,
			Sentence: "The kubelet treats a path such as mailto:x as a URL without a host and sends no request; this package treats it as a path.",
			Explains: func(s scene) bool {
				get := s.World.Handler.HTTPGet
				if get == nil || get.Path != "mailto:x" {
					return false
				}
				asked := s.OursFacts[0]["request 0"]
				_, host, _ := strings.Cut(strings.TrimSuffix(asked, `"`), `host "`)
				if h := header(get, "Host"); h != "" || host == "" {
					address, _, _ := strings.Cut(strings.TrimPrefix(asked, "GET "), " ")
					if u, err := url.Parse(address); err == nil {
						host = u.Host
					}
				}
				want := strings.Replace(s.Kubelet, ":x host", "://"+host+"/mailto:x host", 1)
				if header(get, "Host") == "" {
					want = strings.Replace(want, `host ""`, fmt.Sprintf("host %q", host), 1)
				}
				want = strings.ReplaceAll(want, `:x": `, "://"+host+`/mailto:x": `)
				return s.Ours == want
			},
		},
	}
}

// header returns the first value of a header.
func header(get *corev1.HTTPGetAction, name string) string {
	i := slices.IndexFunc(get.HTTPHeaders, func(h corev1.HTTPHeader) bool { return strings.EqualFold(h.Name, name) })
	if i < 0 {
		return ""
	}
	return get.HTTPHeaders[i].Value
}
