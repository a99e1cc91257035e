package requests

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

// A recorder makes facts of the requests of one step.
type recorder struct {
	root   string // of the files; facts contain $ROOT instead
	direct bool   // see world.Direct

	mu     sync.Mutex
	facts  judge.Facts
	calls  []string
	events map[string][]string // by reason
	pulls  map[string]int
	made   map[string]string                       // configuration of the newest sandbox
	others map[string]*runtimeapi.PodSandboxConfig // sandbox configurations in other requests
}

// begin starts a step.
func (r *recorder) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.facts, r.calls, r.events, r.pulls = judge.Facts{}, nil, map[string][]string{}, map[string]int{}
	r.others = map[string]*runtimeapi.PodSandboxConfig{}
}

// end returns the facts of the step.
func (r *recorder) end() judge.Facts {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.facts["calls"] = strings.Join(r.calls, ", ")
	for name, config := range r.others { // an image may be pulled before its sandbox is made
		r.sandboxOf(name, config)
	}
	for reason, messages := range r.events {
		// Events about successful pulls contain durations, and events about kills belong to
		// package plan.
		if slices.Contains([]string{"Pulling", "Pulled", "BackOff", "Killing"}, reason) {
			continue
		}
		slices.Sort(messages)
		r.facts["event "+reason] = strings.Join(slices.Compact(messages), " | ")
	}
	if r.direct {
		// A direct world records no events, pulls nothing and writes no files on our side.
		maps.DeleteFunc(r.facts, func(name, _ string) bool {
			return name != "event FailedCreatePodSandBox" && !slices.Contains([]string{"create", "sandbox", "container", "calls"}, strings.FieldsFunc(name, func(r rune) bool { return r == ' ' || r == '/' })[0])
		})
		return r.facts
	}
	return r.facts
}

func (r *recorder) set(name, value string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.put(name, value)
}

func (r *recorder) put(name, value string) {
	r.facts[name] = strings.ReplaceAll(value, r.root, "$ROOT")
}

// link adds a fact about a link to a container's log. It omits the restart count in the name,
// which is part of the container's ID.
func (r *recorder) link(log, name string) {
	if r.direct {
		return
	}
	container, attempt := filepath.Base(filepath.Dir(log)), strings.TrimSuffix(filepath.Base(log), ".log")
	r.set("create "+container+"/log link", strings.Replace(name, "-container-"+container+"-"+attempt+"-", "-container-"+container+"-N-", 1))
}

func (r *recorder) has(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.facts[name]
	return ok
}

func (r *recorder) call(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, name)
}

func (r *recorder) event(eventType, reason, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events[reason] = append(r.events[reason], strings.ReplaceAll(eventType+": "+message, r.root, "$ROOT"))
}

// sandbox makes a fact of each field of a sandbox's configuration.
func (r *recorder) sandbox(config *runtimeapi.PodSandboxConfig) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.made = map[string]string{}
	r.flatten(r.made, "sandbox", generic(sorted(config)))
	maps.Copy(r.facts, r.made)
}

// sandboxOf adds a fact for each field in which the sandbox configuration of another request
// differs from that of the sandbox.
func (r *recorder) sandboxOf(name string, config *runtimeapi.PodSandboxConfig) {
	now := map[string]string{}
	r.flatten(now, "sandbox", generic(sorted(config)))
	for field, value := range now {
		if value != r.made[field] {
			r.facts[name+"/"+field] = value
		}
	}
	for field := range r.made {
		if _, ok := now[field]; !ok {
			r.facts[name+"/"+field] = "(not set)"
		}
	}
}

// sorted returns the configuration with sorted resolver options, because the kubelet's have
// no order.
func sorted(config *runtimeapi.PodSandboxConfig) *runtimeapi.PodSandboxConfig {
	if config.GetDnsConfig() != nil {
		slices.Sort(config.DnsConfig.Options)
	}
	return config
}

// container adds facts about a container's configuration. Environment variables have no order
// in the kubelet, and mounts are named by their container paths.
func (r *recorder) container(name string, config *runtimeapi.ContainerConfig, box *runtimeapi.PodSandboxConfig) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name = "create " + name
	for _, e := range config.GetEnvs() {
		r.put(name+"/env/"+e.GetKey(), string(e.GetValue()))
		if len(e.GetValue()) == 0 {
			r.put(name+"/env/"+e.GetKey(), "(empty)")
		}
	}
	var places []string
	for i, m := range config.GetMounts() {
		places = append(places, m.GetContainerPath())
		r.flatten(r.facts, fmt.Sprintf("%s/mount %d", name, i), generic(m))
	}
	r.put(name+"/mounts", strings.Join(places, " "))
	fields, _ := generic(config).(map[string]any)
	delete(fields, "envs")
	delete(fields, "mounts")
	r.flatten(r.facts, name, fields)
	r.others[name] = box
}

// update records a change of resources. Several changes of one object in one step are merged.
func (r *recorder) update(name string, message any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if call := "update " + name; len(r.calls) == 0 || r.calls[len(r.calls)-1] != call {
		r.calls = append(r.calls, call)
	}
	r.flatten(r.facts, "update "+name, generic(message))
}

// pull records a pull. Pulls of one image with the same credentials are numbered.
func (r *recorder) pull(spec *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, config *runtimeapi.PodSandboxConfig) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := "pull " + spec.GetImage() + " as " + auth.GetUsername()
	r.pulls[name]++
	r.put(name+"/count", strconv.Itoa(r.pulls[name]))
	r.flatten(r.facts, name+"/spec", generic(spec))
	r.flatten(r.facts, name+"/auth", generic(auth))
	r.others[name] = config
}

// generic converts a message to its JSON form, without empty fields.
func generic(message any) (v any) {
	text, err := json.Marshal(message)
	if err != nil {
		return err.Error()
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(&v); err != nil {
		return err.Error()
	}
	return v
}

// flatten makes a fact of each leaf. A list of plain values is one leaf.
func (r *recorder) flatten(facts map[string]string, name string, v any) {
	put := func(value string) {
		facts[name] = value
		if r.root != "" {
			facts[name] = strings.ReplaceAll(value, r.root, "$ROOT")
		}
	}
	switch v := v.(type) {
	case nil:
	case map[string]any:
		if len(v) == 0 {
			put("{}")
		}
		for key, value := range v {
			if key == "port_mappings" || key == "hugepage_limits" {
				facts[name+"/"+key] = text(value)
				continue
			}
			r.flatten(facts, name+"/"+key, value)
		}
	case []any:
		if !slices.ContainsFunc(v, func(e any) bool { _, ok := e.(map[string]any); return ok }) {
			put(text(v))
			return
		}
		for i, e := range v {
			r.flatten(facts, name+" "+strconv.Itoa(i), e)
		}
	case string:
		put(v)
	default:
		put(text(v))
	}
}

func text(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(data)
}
