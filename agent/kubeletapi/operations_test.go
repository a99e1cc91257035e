package kubeletapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/kubeletapi"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
	"github.com/kubeparts/kubeparts/imagegc"
)

var _ kubeletapi.Operations = (*agent.Agent)(nil)

// operations records the operations of clients.
type operations struct {
	asked []string
	err   error
}

func (o *operations) Restart(_ context.Context, uid types.UID) error {
	o.asked = append(o.asked, "restart "+string(uid))
	return o.err
}

func (o *operations) Pull(_ context.Context, image string) (*runtimeapi.Image, error) {
	o.asked = append(o.asked, "pull "+image)
	return &runtimeapi.Image{Id: "sha256:1", RepoTags: []string{image}, RepoDigests: []string{image + "@sha256:2"}, Size: 3}, o.err
}

// operate sends a request to a server with the pod ns/web-node1.
func operate(t *testing.T, o kubeletapi.Operations, method, target string) *httptest.ResponseRecorder {
	t.Helper()
	token := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(token, []byte("secret"), 0o600))
	s, err := kubeletapi.New(kubeletapi.Config{
		Agent:      &fake{pods: []agent.Pod{podOf("web-node1", agent.Admitted, "app")}, node: nodeNamed("node1", "True")},
		Operations: o, Access: kubeletapi.Access{TokenFile: token},
	})
	require.NoError(t, err)
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, target, nil))
	return w
}

func TestOperations_Responses(t *testing.T) {
	t.Parallel()
	wrapped := func(err error) error { return fmt.Errorf("agent: restart pod ns/web: %w", err) }
	for _, x := range []struct {
		method, target string
		err            error
		code           int
		want, asked    string
	}{
		{http.MethodPost, "/agent/restart/ns/web-node1", nil, 200, `{"namespace":"ns","name":"web-node1","uid":"web-node1"}`, "restart web-node1"},
		{http.MethodPost, "/agent/restart/ns/web", nil, 200, `{"namespace":"ns","name":"web-node1","uid":"web-node1"}`, "restart web-node1"},
		{http.MethodPost, "/agent/restart/ns/other", nil, 404, `pod "other" not found in namespace "ns"`, ""},
		{http.MethodPost, "/agent/restart/ns/web", wrapped(agent.ErrNotRestartable), 409, "agent: restart pod ns/web: the pod can't be restarted", "restart web-node1"},
		{http.MethodPost, "/agent/restart/ns/web", wrapped(agent.ErrUnknownPod), 404, "agent: restart pod ns/web: the pod is unknown", "restart web-node1"},
		{http.MethodPost, "/agent/restart/ns/web", errors.New("the disk is full"), 500, "the disk is full", "restart web-node1"},
		{http.MethodGet, "/agent/restart/ns/web", nil, 405, "Method Not Allowed", ""},
		{http.MethodPost, "/agent/pull?image=a/b:1", nil, 200, `{"id":"sha256:1","tags":["a/b:1"],"digests":["a/b:1@sha256:2"],"sizeBytes":3,"delete":false}`, "pull a/b:1"},
		{http.MethodPost, "/agent/pull", nil, 400, "image: the parameter is missing", ""},
		{http.MethodPost, "/agent/pull?image=A", fmt.Errorf("pull: %w", agent.ErrInvalidImageName), 400, "pull: the name of the image is invalid", "pull A"},
		{http.MethodPost, "/agent/pull?image=a", errors.New("no\nregistry"), 500, "no\n  registry", "pull a"},
		{http.MethodGet, "/agent/pull?image=a", nil, 405, "Method Not Allowed", ""},
	} {
		o := &operations{err: x.err}
		w := operate(t, o, x.method, x.target)
		name := x.method + " " + x.target
		require.Equal(t, x.code, w.Code, name)
		require.Equal(t, x.want, strings.TrimSpace(w.Body.String()), name)
		require.Equal(t, x.asked, strings.Join(o.asked, ", "), name)
	}
}

// Without Operations, restarts and pulls are disabled. Operations requires an Access that
// authenticates clients.
func TestOperations_Disabled(t *testing.T) {
	t.Parallel()
	for _, target := range []string{"/agent/restart/ns/web", "/agent/pull?image=a"} {
		w := operate(t, nil, http.MethodPost, target)
		require.Equal(t, http.StatusMethodNotAllowed, w.Code, target)
		require.Contains(t, w.Body.String(), "Restarts and pulls are disabled", target)
	}
	_, err := kubeletapi.New(kubeletapi.Config{Agent: &fake{}, Operations: &operations{}})
	require.ErrorContains(t, err, "field Operations: requires Access.TokenFile, ClientCAFile or TokenReviewer, because every client could stop containers")
}

func TestImages(t *testing.T) {
	t.Parallel()
	plan := agent.Plan{Images: imagegc.Plan{At: at, Decisions: []imagegc.Decision{
		{Image: imagegc.Image{ID: "sha256:1", Tags: []string{"web:1"}, SizeBytes: 7, Containers: 2, FirstDetected: at.Add(-time.Hour), LastUsed: at}, Reason: imagegc.ReasonInUse},
		{Image: imagegc.Image{ID: "sha256:2", Digests: []string{"db@sha256:3"}, Pinned: true}, Delete: true, Reason: imagegc.ReasonSpace},
	}}}
	var errPlan error
	a := &fake{plan: func(context.Context) (agent.Plan, error) { return plan, errPlan }}
	s, err := kubeletapi.New(kubeletapi.Config{Agent: a})
	require.NoError(t, err)
	get := func() *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/agent/images", nil))
		return w
	}
	want := api.ImageList{Now: at, Items: []api.Image{
		{ID: "sha256:1", Tags: []string{"web:1"}, SizeBytes: 7, Containers: 2, FirstSeen: new(at.Add(-time.Hour)), LastUsed: new(at), Reason: "in use"},
		{ID: "sha256:2", Digests: []string{"db@sha256:3"}, Pinned: true, Delete: true, Reason: "space"},
	}}
	for _, errPlan = range []error{nil, errors.New("the node could not be measured")} {
		var got api.ImageList
		require.NoError(t, json.Unmarshal(get().Body.Bytes(), &got))
		require.Equal(t, want, got)
	}
	plan = agent.Plan{}
	w := get()
	require.Equal(t, http.StatusInternalServerError, w.Code)
	require.Contains(t, w.Body.String(), "the node could not be measured")
	errPlan = nil
	require.JSONEq(t, `{"now":"0001-01-01T00:00:00Z","items":[]}`, get().Body.String())
}
