package config

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	cliflag "k8s.io/component-base/cli/flag"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

type scene = judge.Scene[*world]

const docPath = "agent/kubeletconfig/doc.go"

// refusal returns the field if a fact is about a rejected value.
func refusal(s scene) (field string, ok bool) { return strings.CutPrefix(s.Fact, "refused ") }

// has reports whether a side has a fact with this prefix.
func has(facts []judge.Facts, prefix string) bool {
	return slices.ContainsFunc(slices.Collect(maps.Keys(facts[0])), func(fact string) bool { return strings.HasPrefix(fact, prefix) })
}

// refuses reports whether a side rejects the file.
func refuses(facts []judge.Facts) bool {
	for fact, value := range facts[0] {
		if strings.HasPrefix(fact, "refused ") && value == "yes" {
			return true
		}
	}
	return has(facts, "decode") || has(facts, "strict ") || has(facts, "not implemented ")
}

// isOurs reports whether our package supports a field.
func isOurs(field string) bool { return field == "eviction" || ourTypes()[field] != nil }

// undecodable reports whether the file has a value that the kubelet cannot decode, in a field
// that our package does not read.
func undecodable(w *world) bool {
	return slices.ContainsFunc(w.Lines, func(l line) bool {
		t := fieldTypes()[l.Name]
		return t != nil && !isOurs(l.Name) && json.Unmarshal([]byte(l.Value), reflect.New(t).Interface()) != nil
	})
}

// otherYAML reports whether the file has a scalar to which the two YAML parsers give
// different types: a number with an exponent, or yes.
func otherYAML(w *world) bool {
	return slices.ContainsFunc(w.Lines, func(l line) bool {
		return strings.Contains(l.Value, "1e2") || l.Value == "yes" || l.Value == "0x10"
	})
}

// secondDocument reports whether the file has more than one document.
func secondDocument(w *world) bool { return strings.HasPrefix(w.Tail, "---\n") }

// notStrict reports whether our package rejects a field that only a strict decoder rejects:
// an unknown field, a repeated field, or a field with such a field inside it. The empty name
// means the whole file.
func notStrict(w *world, field string) bool {
	if field == "" {
		return secondDocument(w)
	}
	value, set := w.value(field)
	if len(linesOf(w, field)) > 1 {
		return true
	}
	if !set || field == "apiVersion" || field == "kind" {
		return false
	}
	t := fieldTypes()[field]
	switch {
	case t == nil:
		return true
	case !isOurs(field):
		return false
	default:
		return t.Kind() == reflect.Struct && strings.HasPrefix(value, `{"a":`) || t.Kind() == reflect.Map && value == `{"a":"b","a":"c"}`
	}
}

// isRepeated reports whether the file sets a field twice.
func isRepeated(w *world) bool {
	names := map[string]bool{}
	for _, l := range w.Lines {
		names[l.Name] = true
	}
	return len(names) < len(w.Lines)
}

func (k *kubelet) rules(t *testing.T) []judge.Rule[*world] {
	t.Helper()
	all := slices.Concat(formRules(), valueRules(), []judge.Rule[*world]{defaultsRule(), checkedRule()}, ownRules(), fieldRules())
	return append(all, k.repeatedRule(t, all))
}

// repeatedRule explains what our package reports about the first of two values of a field.
// The kubelet must report the same about the file without the second value, or one of others
// must explain the remaining difference.
func (k *kubelet) repeatedRule(t *testing.T, others []judge.Rule[*world]) judge.Rule[*world] {
	t.Helper()
	return judge.Rule[*world]{
		Name: "first value of a repeated field", Class: judge.Deliberate, Doc: docPath,
		Sentence: "If a field is set twice, ours reports the second value as a mistake and also checks the first value; the kubelet uses the last value.",
		Explains: func(s scene) bool {
			if _, ok := refusal(s); !ok && s.Fact != "decode" || !isRepeated(s.World) {
				return false
			}
			first := &world{Tail: s.World.Tail}
			for _, l := range s.World.Lines {
				if _, there := first.value(l.Name); !there {
					first.Lines = append(first.Lines, l)
				}
			}
			s.World, s.KubeletFacts = first, k.play(t, first)
			s.Kubelet = s.KubeletFacts[0][s.Fact]
			return s.Kubelet == s.Ours || slices.ContainsFunc(others, func(r judge.Rule[*world]) bool { return r.Explains(s) })
		},
	}
}

// formRules are about the decoding of the file as a whole.
func formRules() []judge.Rule[*world] {
	return []judge.Rule[*world]{{
		Name: "unknown and repeated fields", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet logs an unknown field, a field that is set twice and a second document, and continues; ours refuses the file.",
		Explains: func(s scene) bool {
			if field, ok := strings.CutPrefix(s.Fact, "strict "); ok {
				return s.Ours == "yes" && notStrict(s.World, field) || s.Kubelet == "logged" && s.Ours == "" && (has(s.OursFacts, "decode") || secondDocument(s.World))
			}
			field, ok := refusal(s)
			switch {
			case !ok && s.Fact != "decode":
				return false
			case s.Kubelet == "" || s.Ours != "":
				return false
			}
			// Our package reads no field of a file that has a second document. It does not
			// validate a field that it could not decode.
			return has(s.OursFacts, "strict ") && strings.HasPrefix(s.World.Tail, "---\n") || has(s.OursFacts, "strict "+field) && len(linesOf(s.World, field)) < 2
		},
	}, {
		Name: "unsupported fields refused", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet supports a second endpoint for images, and default sysctls; ours refuses the fields that configure them.",
		Explains: func(s scene) bool {
			field, ok := strings.CutPrefix(s.Fact, "not implemented ")
			_, set := s.World.value(field)
			return ok && set && s.Ours == "yes" && !isOurs(field)
		},
	}, {
		Name: "unsupported fields ignored", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet reads and validates the fields that ours ignores with a note.",
		Explains: func(s scene) bool {
			if field, ok := strings.CutPrefix(s.Fact, "ignored "); ok {
				_, set := s.World.value(field)
				return set && s.Ours == "yes" && !isOurs(field) && (s.Kubelet == "read" || refuses(s.KubeletFacts))
			}
			if s.Fact == "decode" {
				return s.Kubelet == "refused" && s.Ours == "" && undecodable(s.World)
			}
			field, ok := refusal(s)
			return ok && s.Kubelet == "yes" && s.Ours == "" && !isOurs(field)
		},
	}}
}

// valueRules are about single values, and their consequences for the rest of the file.
func valueRules() []judge.Rule[*world] {
	return []judge.Rule[*world]{{
		Name: "null durations", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet refuses null for some durations; ours treats null as not set for every field.",
		Explains: func(s scene) bool {
			null := slices.ContainsFunc(s.World.Lines, func(l line) bool {
				return (l.Value == "null" || l.Value == "~") && fieldTypes()[l.Name] == reflect.TypeFor[metav1.Duration]()
			})
			return null && s.Fact == "decode" && s.Kubelet == "refused" && s.Ours == ""
		},
	}, {
		Name: "YAML scalars 1e2 and yes", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet accepts 1e2 as a whole number and yes as true; ours refuses them.",
		Explains: func(s scene) bool {
			if s.Fact == "decode" {
				yes := slices.ContainsFunc(s.World.Lines, func(l line) bool { return l.Value == "yes" && isOurs(l.Name) })
				return s.Kubelet == "" && s.Ours == "refused" && otherYAML(s.World) || s.Kubelet == "refused" && s.Ours == "" && yes
			}
			_, ok := refusal(s)
			return ok && s.Kubelet != "" && has(s.OursFacts, "decode") && otherYAML(s.World)
		},
	}, {
		Name: "values of a refused file", Class: judge.Deliberate, Doc: docPath,
		Sentence: "Ours refuses some files that the kubelet accepts, and accepts some files that the kubelet refuses. Neither ours nor the kubelet uses a field of a file that it refuses.",
		Explains: func(s scene) bool {
			field, ok := strings.CutPrefix(s.Fact, "value ")
			switch {
			case strings.HasPrefix(s.Fact, "threshold "), strings.HasPrefix(s.Fact, "lost "), strings.HasPrefix(s.Fact, "ignored "):
				return refuses(s.KubeletFacts) && s.Kubelet == "" || refuses(s.OursFacts) && s.Ours == ""
			case !ok:
				return has(s.KubeletFacts, "decode") && s.Kubelet == "" && s.Ours == "yes"
			case refuses(s.OursFacts):
				return s.Ours == ""
			case !refuses(s.KubeletFacts):
				return false
			}
			// The kubelet's fact if it decoded this value.
			values := judge.Facts{}
			data, err := json.Marshal(s.World.accepted)
			var all map[string]json.RawMessage
			if err != nil || json.Unmarshal(data, &all) != nil {
				return false
			}
			values["value "+field] = string(all[field])
			s.Kubelet = values[s.Fact]
			return s.Ours == s.Kubelet || has(s.KubeletFacts, "decode") || defaultsRule().Explains(s) || isMerged(s)
		},
	}}
}

// isMerged reports whether the difference is that one side merges the default thresholds into
// those of the file.
func isMerged(s scene) bool {
	value, set := s.World.value("evictionHard")
	merge, _ := s.World.value("mergeDefaultEvictionSettings")
	var ours, file, kubelet map[string]string
	if s.Fact != "value evictionHard" || !set || merge != "true" || json.Unmarshal([]byte(value), &file) != nil || json.Unmarshal([]byte(s.Kubelet), &kubelet) != nil {
		return false
	}
	if s.Ours != "" && json.Unmarshal([]byte(s.Ours), &ours) != nil || !maps.Equal(ours, file) {
		return false
	}
	for signal, v := range file {
		if kubelet[signal] != v {
			return false
		}
	}
	return len(kubelet) > len(file)
}

// defaultsRule is about fields whose default differs.
func defaultsRule() judge.Rule[*world] {
	return judge.Rule[*world]{
		Name: "different default values", Class: judge.Deliberate, Doc: docPath,
		Sentence: "Some defaults of Load differ, so that an agent can be tried out on a machine in use: address (127.0.0.1), port (10255), containerRuntimeEndpoint (embedded; the value auto is also supported), podLogsDir (in the agent's own folder), cgroupsPerQOS (false, unless cgroupRoot is set), enableProfilingHandler (false), healthzPort (0), authentication.webhook.enabled (false), authorization.mode (AlwaysAllow).",
		Explains: func(s scene) bool {
			d, ok := map[string][2]string{
				"value address":                  {`"0.0.0.0"`, `"127.0.0.1"`},
				"value port":                     {"10250", "10255"},
				"value containerRuntimeEndpoint": {`"unix:///run/containerd/containerd.sock"`, `"embedded"`},
				"value podLogsDir":               {`"/var/log/pods"`, ""},
				"value cgroupsPerQOS":            {"true", ""},
				"value enableProfilingHandler":   {"true", ""},
				"value apiVersion":               {"", `"kubelet.config.k8s.io/v1beta1"`},
				"value kind":                     {"", `"KubeletConfiguration"`},
				"value healthzPort":              {"10248", ""},
				"value crashLoopBackOff":         {`{"maxContainerRestartPeriod":"5m0s"}`, ""},
			}[s.Fact]
			return ok && s.Kubelet == d[0] && s.Ours == d[1] || isAccessDefault(s)
		},
	}
}

// isAccessDefault reports whether the only difference is the default of a mode of
// authentication or authorization that the file does not set.
func isAccessDefault(s scene) bool {
	field, _ := strings.CutPrefix(s.Fact, "value ")
	value, _ := s.World.value(field)
	switch field {
	case "authentication":
		var set kubeletconfigv1beta1.KubeletAuthentication
		_ = json.Unmarshal([]byte(value), &set) // a value that is not set is empty
		return set.Webhook.Enabled == nil && strings.Replace(s.Kubelet, `"webhook":{"enabled":true`, `"webhook":{"enabled":false`, 1) == s.Ours
	case "authorization":
		var set kubeletconfigv1beta1.KubeletAuthorization
		_ = json.Unmarshal([]byte(value), &set) // a value that is not set is empty
		return set.Mode == "" && strings.Replace(s.Kubelet, `"mode":"Webhook"`, `"mode":"AlwaysAllow"`, 1) == s.Ours
	default:
		return false
	}
}

// checkedRule is about values that the kubelet validates later or never.
func checkedRule() judge.Rule[*world] {
	return judge.Rule[*world]{
		Name: "unusable values refused", Class: judge.Deliberate, Doc: docPath,
		Sentence: "The kubelet accepts some values that can't work, and fails later or ignores these values; ours refuses the file.",
		Explains: func(s scene) bool {
			_, ok := refusal(s)
			return ok && s.Kubelet == "later" && s.Ours == "yes"
		},
	}
}

// cannotWork returns, for each field, a function that reports whether its value cannot work.
func cannotWork(w *world) map[string]func() bool {
	c := &w.accepted
	negative := func(d metav1.Duration, least time.Duration) func() bool {
		return func() bool { return d.Duration < least }
	}
	reserved := func(m map[string]string) func() bool {
		return func() bool {
			for name, value := range m {
				if !slices.Contains([]string{"cpu", "memory", "ephemeral-storage"}, name) || !slices.Contains([]string{"100m", "1Gi", "0", "10"}, value) {
					return true
				}
			}
			return false
		}
	}
	all := map[string]func() bool{
		"eviction": func() bool { return noEviction(c) },
		"podPidsLimit": func() bool { // the kubelet treats the value as -1
			value, _ := w.value("podPidsLimit")
			n, err := strconv.Atoi(value)
			return err == nil && n < -1
		},
		"staticPodURL": func() bool {
			u, err := url.Parse(c.StaticPodURL)
			return c.StaticPodURL != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https")
		},
		"staticPodURLHeader": func() bool {
			for name := range c.StaticPodURLHeader {
				if len(validation.IsHTTPHeaderName(name)) > 0 {
					return true
				}
			}
			return len(c.StaticPodURLHeader) > 0 && c.StaticPodURL == ""
		},
		"tlsCertFile":         func() bool { return c.TLSCertFile != "" && c.TLSPrivateKeyFile == "" },
		"tlsPrivateKeyFile":   func() bool { return c.TLSCertFile == "" && c.TLSPrivateKeyFile != "" },
		"tlsMinVersion":       func() bool { _, err := cliflag.TLSVersion(c.TLSMinVersion); return err != nil },
		"tlsCipherSuites":     func() bool { _, err := cliflag.TLSCipherSuites(c.TLSCipherSuites); return err != nil },
		"tlsCurvePreferences": func() bool { _, err := cliflag.TLSCurvePreferences(c.TLSCurvePreferences); return err != nil },
		"healthzBindAddress":  func() bool { return net.ParseIP(c.HealthzBindAddress) == nil },
		"authentication":      negative(c.Authentication.Webhook.CacheTTL, 0),
		"authorization": func() bool {
			mode, ttl := c.Authorization.Mode, c.Authorization.Webhook
			return mode != "AlwaysAllow" && mode != "Webhook" || ttl.CacheAuthorizedTTL.Duration < 0 || ttl.CacheUnauthorizedTTL.Duration < 0
		},
		"address":                  func() bool { return net.ParseIP(c.Address) == nil },
		"containerRuntimeEndpoint": func() bool { return !strings.HasPrefix(c.ContainerRuntimeEndpoint, "unix:///") },
		"clusterDNS": func() bool {
			return slices.ContainsFunc(c.ClusterDNS, func(ip string) bool { return net.ParseIP(ip) == nil })
		},
		"clusterDomain": func() bool {
			return c.ClusterDomain != "" && len(validation.IsDNS1123Subdomain(strings.TrimSuffix(c.ClusterDomain, "."))) > 0
		},
		"podsPerCore":    func() bool { return c.PodsPerCore > c.MaxPods },
		"maxPods":        func() bool { return c.MaxPods < 1 },
		"kubeReserved":   reserved(c.KubeReserved),
		"systemReserved": reserved(c.SystemReserved),
		"cgroupRoot": func() bool {
			return c.CgroupRoot != "" && (!path.IsAbs(c.CgroupRoot) || path.Clean(c.CgroupRoot) != c.CgroupRoot)
		},
		"containerLogMaxSize":              func() bool { return !slices.Contains([]string{"10Mi", "1", "5", "-1", "1Gi"}, c.ContainerLogMaxSize) },
		"volumeStatsAggPeriod":             negative(c.VolumeStatsAggPeriod, time.Second),
		"syncFrequency":                    negative(c.SyncFrequency, time.Millisecond),
		"fileCheckFrequency":               negative(c.FileCheckFrequency, time.Millisecond),
		"httpCheckFrequency":               negative(c.HTTPCheckFrequency, time.Millisecond),
		"evictionPressureTransitionPeriod": negative(c.EvictionPressureTransitionPeriod, 0),
		"allowedUnsafeSysctls": func() bool {
			return slices.ContainsFunc(c.AllowedUnsafeSysctls, func(s string) bool {
				return s == "" || strings.ContainsAny(s, " ,") || strings.Contains(strings.TrimSuffix(s, "*"), "*")
			})
		},
		"shutdownGracePeriodByPodPriority": func() bool {
			if c.ShutdownGracePeriod.Duration+c.ShutdownGracePeriodCriticalPods.Duration < 0 {
				return len(c.ShutdownGracePeriodByPodPriority) > 0
			}
			seen := map[int32]bool{}
			for _, p := range c.ShutdownGracePeriodByPodPriority {
				if p.ShutdownGracePeriodSeconds < 0 || seen[p.Priority] {
					return true
				}
				seen[p.Priority] = true
			}
			return false
		},
	}
	return all
}

// noEviction reports whether the eviction settings cannot work: a grace period or a minimum
// reclaim without its threshold, a soft threshold that is not above the hard one, or a
// minimum reclaim that cannot be reached.
func noEviction(c *kubeletconfigv1beta1.KubeletConfiguration) bool {
	percent := func(m map[string]string, signal string) (n int) {
		_, _ = fmt.Sscanf(m[signal], "%d%%", &n)
		if !strings.HasSuffix(m[signal], "%") {
			return 0
		}
		return n
	}
	for signal := range c.EvictionSoftGracePeriod {
		if c.EvictionSoft[signal] == "" {
			return true
		}
	}
	for signal := range c.EvictionMinimumReclaim {
		most := max(percent(c.EvictionHard, signal), percent(c.EvictionSoft, signal))
		if c.EvictionSoft[signal] == "" && c.EvictionHard[signal] == "" || most > 0 && most+percent(c.EvictionMinimumReclaim, signal) >= 100 {
			return true
		}
	}
	for signal, soft := range c.EvictionSoft {
		hard := c.EvictionHard[signal]
		if strings.HasSuffix(hard, "%") && strings.HasSuffix(soft, "%") && percent(c.EvictionSoft, signal) <= percent(c.EvictionHard, signal) || hard == soft || soft == "1m" && hard == "100Mi" {
			return true
		}
	}
	for _, settings := range []map[string]string{c.EvictionHard, c.EvictionSoft, c.EvictionMinimumReclaim} {
		if slices.Contains(slices.Collect(maps.Values(settings)), "1m") {
			return true // not an integer
		}
	}
	return false
}
