package podsource

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/kubeparts/kubeparts/test/peer/judge"
)

const (
	hashAnnotation   = "kubernetes.io/config.hash"
	seenAnnotation   = "kubernetes.io/config.seen"
	sourceAnnotation = "kubernetes.io/config.source"
)

// memory is a side's state from earlier steps, for facts about changes.
type memory struct {
	uids, hashes map[string]string // by pod
}

func newMemory() *memory { return &memory{uids: map[string]string{}, hashes: map[string]string{}} }

// pods adds the facts about the pods of a source.
func (m *memory) pods(f judge.Facts, w *world, at int, pods []*corev1.Pod) {
	uids, hashes := map[string]string{}, map[string]string{}
	for _, pod := range pods {
		name := pod.Namespace + "/" + pod.Name
		prefix := "pod " + name + " "
		if _, twice := uids[name]; twice {
			f[prefix+"twice"] = "yes"
			continue
		}
		uid, hash := string(pod.UID), pod.Annotations[hashAnnotation]
		uids[name], hashes[name] = uid, hash
		f[prefix+"uid"] = "derived"
		if w.hasUID(at, uid) {
			f[prefix+"uid"] = uid
		}
		f[prefix+"uid changed"] = changed(m.uids, name, uid)
		f[prefix+"hash changed"] = changed(m.hashes, name, hash)
		f[prefix+"hash is uid"] = fmt.Sprint(hash == uid)
		shown := pod.DeepCopy()
		shown.UID = ""
		delete(shown.Annotations, hashAnnotation)
		var tree any
		if err := json.Unmarshal([]byte(marshal(shown)), &tree); err != nil {
			f[prefix+"error"] = err.Error()
		}
		flatten(f, prefix, tree)
	}
	m.uids, m.hashes = uids, hashes
}

func changed(before map[string]string, name, now string) string {
	old, known := before[name]
	if !known {
		return "new"
	}
	return fmt.Sprint(old != now)
}

// hasUID reports whether a manifest of this step or an earlier one has a UID.
func (w *world) hasUID(at int, uid string) bool {
	for _, s := range w.Steps[:at+1] {
		for _, f := range s.Files {
			for _, doc := range f.Docs {
				if text(doc, "metadata", "uid") == uid {
					return true
				}
			}
		}
	}
	return false
}

func flatten(f judge.Facts, path string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			flatten(f, path+"."+key, v[key])
		}
		if len(v) == 0 {
			f[path] = "{}"
		}
	case []any:
		for i, item := range v {
			flatten(f, fmt.Sprintf("%s[%d]", path, i), item)
		}
		if len(v) == 0 {
			f[path] = "[]"
		}
	default:
		f[path] = marshal(v)
	}
}
