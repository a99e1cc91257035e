package cluster_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// api is an API server in memory. It implements what the agent uses: lists and watches with field
// selectors and resource versions, strategic merge patches with preconditions, deletions with
// grace periods, and token requests. It has no authorization and no validation. Requests reach it
// without a network, so it works in a synctest bubble.
type api struct {
	tb testing.TB

	mu       sync.Mutex
	version  uint64
	oldest   uint64                         // watches from earlier versions are refused with 410
	objects  map[string]map[string]document // by resource, then by namespace/name
	history  []change
	changed  chan struct{} // closed at the next change
	requests []string
	// fail returns the response to a request that fails, or nil. It may block.
	fail func(*http.Request, request) error
	// noWatchList makes the server refuse watches with initial events, as old servers do.
	noWatchList bool
	away        bool           // no request reaches the server
	watches     map[string]int // running watches by resource
	breakWatch  chan struct{}  // closed to end all watches
	pageSize    int            // of lists; 0 means that lists have one page
}

// document is an object as JSON.
type document = map[string]any

// change is an event of a watch.
type change struct {
	version  uint64
	kind     string // ADDED, MODIFIED or DELETED
	resource string
	object   []byte
}

// request is a parsed request.
type request struct {
	verb, resource, namespace, name, subresource string
	query                                        map[string][]string
}

func (r request) String() string {
	text := r.verb + " " + r.resource
	if r.subresource != "" {
		text += "/" + r.subresource
	}
	if r.name != "" {
		text += " " + strings.TrimPrefix(r.namespace+"/"+r.name, "/")
	}
	return text
}

func newAPI(tb testing.TB) *api {
	tb.Helper()
	return &api{
		tb: tb, version: 100, objects: map[string]map[string]document{}, changed: make(chan struct{}), watches: map[string]int{}, breakWatch: make(chan struct{}),
	}
}

// client returns a client of the server.
func (a *api) client() kubernetes.Interface { return clientOf(a.tb, a) }

// clientOf returns a client that sends its requests to a transport.
func clientOf(tb testing.TB, transport http.RoundTripper) kubernetes.Interface {
	tb.Helper()
	c, err := kubernetes.NewForConfig(&rest.Config{
		Host: "http://api.test", Transport: transport, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON},
	})
	require.NoError(tb, err)
	return c
}

// RoundTrip implements http.RoundTripper.
func (a *api) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	away := a.away
	a.mu.Unlock()
	if away {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	read, write := io.Pipe()
	w := &response{header: http.Header{"Content-Type": {"application/json"}}, body: write, started: make(chan int, 1)}
	go func() {
		a.serve(w, r)
		w.WriteHeader(http.StatusOK)
		_ = write.Close()
	}()
	select {
	case code := <-w.started:
		context.AfterFunc(r.Context(), func() { read.CloseWithError(r.Context().Err()) })
		return &http.Response{
			StatusCode: code, Status: strconv.Itoa(code), Header: w.header, Body: read, Request: r, ProtoMajor: 1, ProtoMinor: 1, ContentLength: -1,
		}, nil
	case <-r.Context().Done():
		read.CloseWithError(r.Context().Err())
		return nil, r.Context().Err()
	}
}

// response is an http.ResponseWriter that writes to a pipe.
type response struct {
	header  http.Header
	body    *io.PipeWriter
	once    sync.Once
	started chan int
}

func (w *response) Header() http.Header { return w.header }
func (w *response) WriteHeader(code int) {
	w.once.Do(func() { w.started <- code })
}

func (w *response) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

// parse parses the path of a request.
func parse(r *http.Request) request {
	p := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if p[0] == "apis" {
		p = p[3:]
	} else {
		p = p[2:]
	}
	q := request{verb: strings.ToLower(r.Method), query: r.URL.Query()}
	if p[0] == "namespaces" && len(p) > 2 {
		q.namespace, p = p[1], p[2:]
	}
	q.resource = p[0]
	if len(p) > 1 {
		q.name = p[1]
	}
	if len(p) > 2 {
		q.subresource = p[2]
	}
	switch {
	case q.verb == "get" && r.URL.Query().Get("watch") != "":
		q.verb = "watch"
	case q.verb == "get" && q.name == "":
		q.verb = "list"
	case q.verb == "post":
		q.verb = "create"
	case q.verb == "put":
		q.verb = "update"
	}
	return q
}

func (a *api) serve(w http.ResponseWriter, r *http.Request) {
	q := parse(r)
	a.mu.Lock()
	a.requests = append(a.requests, q.String())
	fail := a.fail
	a.mu.Unlock()
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
	}
	if fail != nil {
		if err := fail(r, q); err != nil {
			answer(w, nil, err)
			return
		}
	}
	if q.verb == "watch" {
		a.watch(w, r, q)
		return
	}
	result, err := a.do(q, body)
	answer(w, result, err)
}

// answer writes the result of a request.
func answer(w http.ResponseWriter, result any, err error) {
	if err != nil {
		var status apierrors.APIStatus
		if !errors.As(err, &status) {
			status = apierrors.NewInternalError(err)
		}
		s := status.Status()
		s.Kind, s.APIVersion = "Status", "v1"
		w.WriteHeader(int(s.Code))
		result = s
	}
	_ = json.NewEncoder(w).Encode(result)
}

func (a *api) do(q request, body []byte) (any, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	group := schema.GroupResource{Resource: q.resource}
	if q.subresource == "token" {
		return a.token(q, body)
	}
	if q.verb == "list" {
		return a.list(q), nil
	}
	old, exists := a.objects[q.resource][key(q.namespace, q.name)]
	if q.verb != "create" && !exists {
		return nil, apierrors.NewNotFound(group, q.name)
	}
	switch q.verb {
	case "get":
		return old, nil
	case "create":
		return a.create(q, body)
	case "update":
		next := decode(body)
		if v := field(next, "metadata", "resourceVersion"); v != "" && v != field(old, "metadata", "resourceVersion") {
			return nil, apierrors.NewConflict(group, q.name, errors.New("the object has been modified"))
		}
		return a.store("MODIFIED", q.resource, next), nil
	case "patch":
		return a.patch(q, old, body)
	default:
		return a.delete(q, old, body)
	}
}

func (a *api) list(q request) document {
	items := []any{}
	for _, name := range slices.Sorted(maps.Keys(a.objects[q.resource])) {
		if o := a.objects[q.resource][name]; q.selects(o) {
			items = append(items, o)
		}
	}
	metadata := document{"resourceVersion": strconv.FormatUint(a.version, 10)}
	if a.pageSize > 0 {
		start := 0
		if text := q.query["continue"]; len(text) > 0 {
			start, _ = strconv.Atoi(text[0])
		}
		items = items[start:]
		if len(items) > a.pageSize {
			items = items[:a.pageSize]
			metadata["continue"] = strconv.Itoa(start + a.pageSize)
		}
	}
	v, k := kindOf(q.resource)
	return document{"apiVersion": v, "kind": k + "List", "metadata": metadata, "items": items}
}

// selects reports whether the namespace and the field selector of a request select an object.
func (r request) selects(o document) bool {
	if r.namespace != "" && field(o, "metadata", "namespace") != r.namespace {
		return false
	}
	for _, text := range r.query["fieldSelector"] {
		selector, err := fields.ParseSelector(text)
		if err != nil {
			return false
		}
		for _, want := range selector.Requirements() {
			if field(o, strings.Split(want.Field, ".")...) != want.Value {
				return false
			}
		}
	}
	return true
}

func (a *api) create(q request, body []byte) (any, error) {
	next := decode(body)
	metadata := next["metadata"].(document)
	if q.namespace != "" {
		metadata["namespace"] = q.namespace
	}
	name := field(next, "metadata", "name")
	if q.resource == "events" { // the name contains the time, which does not pass in a bubble
		name = fmt.Sprintf("%s.%d", name, a.version)
		metadata["name"] = name
	}
	if _, exists := a.objects[q.resource][key(q.namespace, name)]; exists {
		return nil, apierrors.NewAlreadyExists(schema.GroupResource{Resource: q.resource}, name)
	}
	if field(next, "metadata", "uid") == "" {
		metadata["uid"] = fmt.Sprintf("uid-%d", a.version+1)
	}
	metadata["creationTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	if q.resource == "pods" { // as the API server's strategy
		next["status"] = document{"phase": "Pending"}
	}
	return a.store("ADDED", q.resource, next), nil
}

func (a *api) patch(q request, old document, body []byte) (any, error) {
	sent := decode(body)
	for _, name := range []string{"uid", "resourceVersion"} {
		if v := field(sent, "metadata", name); v != "" && v != field(old, "metadata", name) {
			return nil, apierrors.NewConflict(schema.GroupResource{Resource: q.resource}, q.name, fmt.Errorf("precondition failed: %s is %s", name, field(old, "metadata", name)))
		}
	}
	var of any = corev1.Pod{}
	switch q.resource {
	case "nodes":
		of = corev1.Node{}
	case "events":
		of = corev1.Event{}
	}
	patched, err := strategicpatch.StrategicMergePatch(encode(old), body, of)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	next := decode(patched)
	if q.subresource == "status" {
		next["spec"] = old["spec"]
		if q.resource == "pods" {
			next["metadata"] = old["metadata"]
		}
	}
	if bytes.Equal(encode(next), encode(old)) {
		return old, nil
	}
	return a.store("MODIFIED", q.resource, next), nil
}

func (a *api) delete(q request, old document, body []byte) (any, error) {
	var options metav1.DeleteOptions
	if err := json.Unmarshal(body, &options); err != nil && len(body) > 0 {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if p := options.Preconditions; p != nil && p.UID != nil && string(*p.UID) != field(old, "metadata", "uid") {
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: q.resource}, q.name, errors.New("the UID in the precondition differs"))
	}
	grace := int64(30)
	if options.GracePeriodSeconds != nil {
		grace = *options.GracePeriodSeconds
	}
	if q.resource == "pods" && grace > 0 {
		next := decode(encode(old))
		metadata := next["metadata"].(document)
		metadata["deletionTimestamp"] = time.Now().Add(time.Duration(grace) * time.Second).UTC().Format(time.RFC3339)
		metadata["deletionGracePeriodSeconds"] = grace
		return a.store("MODIFIED", q.resource, next), nil
	}
	if finalizers, _ := old["metadata"].(document)["finalizers"].([]any); len(finalizers) > 0 {
		return old, nil
	}
	return a.store("DELETED", q.resource, old), nil
}

func (a *api) token(q request, body []byte) (any, error) {
	var tr authenticationv1.TokenRequest
	if err := json.Unmarshal(body, &tr); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	a.version++
	life := time.Duration(*tr.Spec.ExpirationSeconds) * time.Second
	tr.Status.Token = fmt.Sprintf("token-%d of %s/%s for %s", a.version, q.namespace, q.name, tr.Spec.BoundObjectRef.Name)
	tr.Status.ExpirationTimestamp = metav1.NewTime(time.Now().Add(life))
	return tr, nil
}

// store stores a copy of an object with a new resource version and informs the watches. A stored
// object never changes, because answers are encoded without the lock.
func (a *api) store(kind, resource string, o document) document {
	a.version++
	v, k := kindOf(resource)
	o = decode(encode(o))
	o["apiVersion"], o["kind"] = v, k
	o["metadata"].(document)["resourceVersion"] = strconv.FormatUint(a.version, 10)
	at := key(field(o, "metadata", "namespace"), field(o, "metadata", "name"))
	if a.objects[resource] == nil {
		a.objects[resource] = map[string]document{}
	}
	if kind == "DELETED" {
		delete(a.objects[resource], at)
	} else {
		a.objects[resource][at] = o
	}
	a.history = append(a.history, change{a.version, kind, resource, encode(o)})
	close(a.changed)
	a.changed = make(chan struct{})
	return o
}

// watch sends events until the request is cancelled.
func (a *api) watch(w http.ResponseWriter, r *http.Request, q request) {
	a.mu.Lock()
	from, _ := strconv.ParseUint(r.URL.Query().Get("resourceVersion"), 10, 64)
	initial := r.URL.Query().Get("sendInitialEvents") == "true"
	broken := a.breakWatch
	var first document
	switch {
	case initial && a.noWatchList:
		a.mu.Unlock()
		answer(w, nil, apierrors.NewInvalid(schema.GroupKind{Kind: "ListOptions"}, "", nil))
		return
	case initial:
		first, from = a.list(q), a.version
	case from < a.oldest:
		a.mu.Unlock()
		answer(w, nil, apierrors.NewResourceExpired("too old resource version"))
		return
	}
	a.watches[q.resource]++
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.watches[q.resource]--
	}()
	w.WriteHeader(http.StatusOK)
	if initial {
		for _, o := range first["items"].([]any) {
			send(w, "ADDED", encode(o))
		}
		v, k := kindOf(q.resource)
		send(w, "BOOKMARK", encode(document{"apiVersion": v, "kind": k, "metadata": document{
			"resourceVersion": strconv.FormatUint(from, 10), "annotations": document{metav1.InitialEventsAnnotationKey: "true"},
		}}))
	}
	for {
		a.mu.Lock()
		changed := a.changed
		var due []change
		for _, c := range a.history {
			if c.version > from && c.resource == q.resource && q.selects(decode(c.object)) {
				due = append(due, c)
			}
		}
		from = a.version
		a.mu.Unlock()
		for _, c := range due {
			send(w, c.kind, c.object)
		}
		select {
		case <-changed:
		case <-broken:
			return
		case <-r.Context().Done():
			return
		}
	}
}

func send(w http.ResponseWriter, kind string, o []byte) {
	_ = json.NewEncoder(w).Encode(document{"type": kind, "object": json.RawMessage(o)})
}

// kindOf returns the version and kind of a resource.
func kindOf(resource string) (version, kind string) {
	switch resource {
	case "leases":
		return "coordination.k8s.io/v1", "Lease"
	case "runtimeclasses":
		return "node.k8s.io/v1", "RuntimeClass"
	default:
		kinds := map[string]string{"pods": "Pod", "nodes": "Node", "services": "Service", "configmaps": "ConfigMap", "secrets": "Secret", "events": "Event"}
		return "v1", kinds[resource]
	}
}

func key(namespace, name string) string { return namespace + "/" + name }

func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}

func decode(data []byte) document {
	var d document
	if err := json.Unmarshal(data, &d); err != nil {
		panic(err)
	}
	return d
}

// field returns a text field of an object.
func field(o document, path ...string) string {
	for _, name := range path[:len(path)-1] {
		o, _ = o[name].(document)
	}
	text, _ := o[path[len(path)-1]].(string)
	return text
}
