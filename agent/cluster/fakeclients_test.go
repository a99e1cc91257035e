package cluster_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
)

// This file has the actions of other clients at the API server, and the queries of tests.

// put creates or replaces an object, as another client does.
func (a *api) put(resource string, o runtime.Object) document {
	a.mu.Lock()
	defer a.mu.Unlock()
	d := decode(encode(o))
	at := key(field(d, "metadata", "namespace"), field(d, "metadata", "name"))
	old, exists := a.objects[resource][at]
	metadata := d["metadata"].(document)
	switch {
	case exists && field(d, "metadata", "uid") == "":
		metadata["uid"] = field(old, "metadata", "uid")
	case field(d, "metadata", "uid") == "":
		metadata["uid"] = fmt.Sprintf("uid-%d", a.version+1)
	}
	if exists {
		return a.store("MODIFIED", resource, d)
	}
	return a.store("ADDED", resource, d)
}

// read returns an object, and false if it does not exist.
func read[T any](a *api, resource, namespace, name string) (T, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var o T
	d, exists := a.objects[resource][key(namespace, name)]
	if exists {
		require.NoError(a.tb, json.Unmarshal(encode(d), &o))
	}
	return o, exists
}

// edit changes an object, as another client does.
func edit[T any](a *api, resource, namespace, name string, f func(*T)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	d, exists := a.objects[resource][key(namespace, name)]
	require.True(a.tb, exists, "%s %s/%s", resource, namespace, name)
	var o T
	require.NoError(a.tb, json.Unmarshal(encode(d), &o))
	f(&o)
	a.store("MODIFIED", resource, decode(encode(o)))
}

// remove deletes an object at once.
func (a *api) remove(resource, namespace, name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.store("DELETED", resource, a.objects[resource][key(namespace, name)])
}

// failing sets the function that makes requests fail.
func (a *api) failing(f func(*http.Request, request) error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fail = f
}

// endWatches ends all watches. If compacted is true, the next watch from an old version gets 410.
func (a *api) endWatches(compacted bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	close(a.breakWatch)
	a.breakWatch = make(chan struct{})
	if compacted {
		a.version++
		a.oldest = a.version
	}
}

// sent returns the recorded requests that start with prefix. It does not delete them.
func (a *api) sent(prefix string) (found []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range a.requests {
		if strings.HasPrefix(r, prefix) {
			found = append(found, r)
		}
	}
	return found
}

// forget deletes the recorded requests.
func (a *api) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.requests = nil
}

// watching returns the number of running watches of a resource.
func (a *api) watching(resource string) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.watches[resource]
}

// setAway makes the server unreachable, or reachable again.
func (a *api) setAway(away bool) {
	a.endWatches(false)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.away = away
}

// paged sets the number of objects on a page of a list.
func (a *api) paged(size int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.pageSize = size
}

// snapshot returns a function that restores the current objects with their versions, as a restored
// etcd does.
func (a *api) snapshot() (restore func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	version, objects := a.version, map[string]map[string]document{}
	for resource, named := range a.objects {
		objects[resource] = maps.Clone(named) // stored objects never change
	}
	return func() {
		a.endWatches(false)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.version, a.objects = version, objects
		a.history = slices.DeleteFunc(a.history, func(c change) bool { return c.version > version })
	}
}
