package kubeletapi_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/kubeparts/kubeparts/agent"
	"github.com/kubeparts/kubeparts/agent/kubeletapi"
	"github.com/kubeparts/kubeparts/agent/kubeletapi/api"
)

// byUID explains each pod by its UID.
func byUID(pods ...agent.Pod) *fake {
	f := &fake{node: nodeNamed("node1", corev1.ConditionTrue), pods: pods}
	f.explain = func(uid types.UID) (agent.Explanation, error) {
		p, _ := f.Pod(uid)
		return agent.Explanation{Pod: p, Why: []string{"uid " + string(uid)}}, nil
	}
	return f
}

func explanationOf(t *testing.T, cfg kubeletapi.Config, name string) api.Explanation {
	t.Helper()
	w := answer(t, cfg, "/agent/explain/ns/"+name)
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	var e api.Explanation
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &e))
	return e
}

func TestExplain_FindsThePodByItsName(t *testing.T) {
	t.Parallel()
	pod := func(uid, name string) agent.Pod {
		p := podOf(name, agent.Admitted)
		p.Spec.UID = types.UID(uid)
		return p
	}
	other := pod("other", "web")
	other.Spec.Namespace = "other"
	for name, c := range map[string]struct {
		pods []agent.Pod
		want string // the UID
	}{
		"exact name":                         {[]agent.Pod{pod("1", "web")}, "1"},
		"without the node's name":            {[]agent.Pod{pod("1", "web-node1")}, "1"},
		"of this namespace":                  {[]agent.Pod{other, pod("1", "web")}, "1"},
		"exact name first":                   {[]agent.Pod{pod("1", "web-node1"), pod("2", "web")}, "2"},
		"exact name first, in any order":     {[]agent.Pod{pod("2", "web"), pod("1", "web-node1")}, "2"},
		"defined wins":                       {[]agent.Pod{undefined(pod("1", "web")), pod("2", "web")}, "2"},
		"defined wins, in any order":         {[]agent.Pod{pod("2", "web"), undefined(pod("1", "web"))}, "2"},
		"defined wins over the exact name":   {[]agent.Pod{undefined(pod("1", "web")), pod("2", "web-node1")}, "2"},
		"undefined if no other has the name": {[]agent.Pod{undefined(pod("1", "web-node1")), pod("2", "web2")}, "1"},
	} {
		e := explanationOf(t, kubeletapi.Config{Agent: byUID(c.pods...)}, "web")
		require.Equal(t, []string{"uid " + c.want}, e.Why, name)
		require.Equal(t, c.want, e.Pod.UID, name)
	}
	for _, missing := range []string{"we", "web-node2", "web-"} {
		code, _ := ask(t, kubeletapi.Config{Agent: byUID(pod("1", "web-node1"))}, "/agent/explain/ns/"+missing)
		require.Equal(t, http.StatusNotFound, code, missing)
	}
	noNode := byUID(pod("1", "web"))
	noNode.node = nil
	require.Equal(t, "1", explanationOf(t, kubeletapi.Config{Agent: noNode}, "web").Pod.UID)
}

func TestExplain_ReturnsTheAgentsExplanation(t *testing.T) {
	t.Parallel()
	p := podOf("p", agent.Ending, "c")
	later := at.Add(time.Minute)
	f := byUID(p)
	f.explain = func(types.UID) (agent.Explanation, error) {
		return agent.Explanation{
			Pod: p, Why: []string{"it is being ended"}, Next: []agent.Step{{What: "soon"}, {At: later, What: "later"}}, Plan: "stop c\n", Rank: "first",
		}, nil
	}
	e := explanationOf(t, kubeletapi.Config{Agent: f}, "p")
	require.Equal(t, "Terminating", e.Pod.State)
	require.Equal(t, api.Explanation{
		Pod: e.Pod, Why: []string{"it is being ended"}, Next: []api.Step{{What: "soon"}, {At: &later, What: "later"}}, Plan: "stop c", EvictionOrder: "first",
	}, e)

	f.explain = func(types.UID) (agent.Explanation, error) { return agent.Explanation{Pod: p}, nil }
	_, body := ask(t, kubeletapi.Config{Agent: f}, "/agent/explain/ns/p")
	require.Contains(t, body, `"why":[],"next":[],`, "JSON lists must be empty, not null")
}

func TestExplain_ProblemsOfTheManifestComeFirst(t *testing.T) {
	t.Parallel()
	duplicate := func(pod string) error { return field.Duplicate(field.NewPath("metadata", "name"), pod) }
	problems := []kubeletapi.Problem{
		{File: "/etc/pods/web.yaml", Err: errors.New("no containers")},
		{File: "/etc/pods/all.yaml", Err: duplicate("ns/web-node1")},
		{File: "/etc/pods/one.yaml", Err: fmt.Errorf("document 1: %w", duplicate("other/web-node1"))},
		{File: "/etc/pods/db.yaml", Err: errors.New(`spec.containers[0].volumeMounts[0].name: Not found: "web"`)}, // a problem of a volume
		{File: "/etc/pods/web2.yaml", Err: errors.New(`pod "web2": no containers`)},
	}
	cfg := kubeletapi.Config{Agent: byUID(podOf("web-node1", agent.Admitted)), Problems: func() []kubeletapi.Problem { return problems }}
	const prefix = "a manifest of this pod is invalid, its last valid version is in use: "
	want := []string{
		prefix + "/etc/pods/web.yaml: no containers",
		`another manifest of this pod is ignored: /etc/pods/all.yaml: metadata.name: Duplicate value: "ns/web-node1"`,
		"uid web-node1",
	}
	require.Equal(t, want, explanationOf(t, cfg, "web").Why)
	require.Equal(t, want, explanationOf(t, cfg, "web-node1").Why)

	// This manifest never defined a pod.
	require.Equal(t, api.Explanation{
		Pod:  api.Pod{Namespace: "ns", Name: "web2", State: "InvalidManifest", Containers: []api.Container{}},
		Why:  []string{`/etc/pods/web2.yaml: pod "web2": no containers`},
		Next: []api.Step{{What: "the agent starts the pod when its manifest is corrected"}},
	}, explanationOf(t, cfg, "web2"))
	code, body := ask(t, cfg, "/agent/explain/ns/web3")
	require.Equal(t, http.StatusNotFound, code)
	require.Equal(t, "pod \"web3\" not found in namespace \"ns\", and no manifest with that name has a problem\n", body)
}

func TestProblem_IsTheErrorOfItsFile(t *testing.T) {
	t.Parallel()
	cause := errors.New("bad")
	p := kubeletapi.Problem{File: "f", Err: cause}
	require.EqualError(t, p, "f: bad")
	require.ErrorIs(t, p, cause)
}
