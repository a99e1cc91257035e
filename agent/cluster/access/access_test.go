package access_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	testingclock "k8s.io/utils/clock/testing"

	"github.com/kubeparts/kubeparts/agent/cluster/access"
	"github.com/kubeparts/kubeparts/agent/kubeletapi"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// onCreate returns a client whose API server answers the creation of a resource with a function.
func onCreate[T runtime.Object](resource string, answer func(T) (T, error)) *fake.Clientset {
	client := fake.NewClientset()
	client.PrependReactor("create", resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
		o, err := answer(action.(clienttesting.CreateAction).GetObject().(T))
		return true, o, err
	})
	return client
}

func TestReviewer_ReviewToken(t *testing.T) {
	t.Parallel()
	client := onCreate("tokenreviews", func(r *authenticationv1.TokenReview) (*authenticationv1.TokenReview, error) {
		switch r.Spec.Token {
		case "good":
			r.Status = authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{
				Username: "jane", UID: "7", Groups: []string{"devs"}, Extra: map[string]authenticationv1.ExtraValue{"scopes": {"a", "b"}},
			}}
		case "bad":
			r.Status.Error = "[invalid bearer token, square/go-jose: error]"
		case "odd":
			r.Status.Error = "the webhook timed out"
		case "down":
			return nil, errors.New("connection refused")
		}
		return r, nil
	})
	r, err := access.New(access.Config{Client: client})
	require.NoError(t, err)

	user, ok, err := r.ReviewToken(t.Context(), "good")
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, kubeletapi.User{Name: "jane", UID: "7", Groups: []string{"devs"}, Extra: map[string][]string{"scopes": {"a", "b"}}}, user)
	for _, token := range []string{"bad", "unknown"} {
		_, ok, err = r.ReviewToken(t.Context(), token)
		require.NoError(t, err)
		require.False(t, ok, token)
	}
	for token, want := range map[string]string{"odd": "TokenReview: the webhook timed out", "down": "create a TokenReview: connection refused"} {
		_, ok, err = r.ReviewToken(t.Context(), token)
		require.ErrorContains(t, err, want)
		require.False(t, ok)
	}
}

// judge is an API server that decides about requests of users.
type judge struct {
	mu     sync.Mutex
	asked  []authorizationv1.SubjectAccessReviewSpec
	status authorizationv1.SubjectAccessReviewStatus
	err    error
}

// reviewer returns a Reviewer that asks the judge, and its clock.
func (j *judge) reviewer(t *testing.T, cfg access.Config) (*access.Reviewer, *testingclock.FakePassiveClock) {
	t.Helper()
	clk := testingclock.NewFakePassiveClock(time.Now())
	cfg.Clock = clk
	cfg.Client = onCreate("subjectaccessreviews", func(r *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
		j.mu.Lock()
		defer j.mu.Unlock()
		j.asked = append(j.asked, r.Spec)
		answer := r.DeepCopy()
		answer.Status = j.status
		return answer, j.err
	})
	r, err := access.New(cfg)
	require.NoError(t, err)
	return r, clk
}

// requests returns the number of requests to the API server.
func (j *judge) requests() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return len(j.asked)
}

// metrics returns the attributes of a request for the metrics of a node.
func metrics(user kubeletapi.User) kubeletapi.Attributes {
	return kubeletapi.Attributes{User: user, Verb: "get", APIVersion: "v1", Resource: "nodes", Subresource: "metrics", Name: "node1", Path: "/metrics/cadvisor"}
}

func TestReviewer_AuthorizeSendsTheUserAndTheAttributes(t *testing.T) {
	t.Parallel()
	j := &judge{status: authorizationv1.SubjectAccessReviewStatus{Allowed: true, Reason: "RBAC: allowed"}}
	r, _ := j.reviewer(t, access.Config{})
	allowed, reason, err := r.Authorize(t.Context(), metrics(kubeletapi.User{
		Name: "jane", UID: "7", Groups: []string{"devs", "ops"}, Extra: map[string][]string{"scopes": {"a", "b"}},
	}))
	require.NoError(t, err)
	require.True(t, allowed)
	require.Equal(t, "RBAC: allowed", reason)
	require.Equal(t, []authorizationv1.SubjectAccessReviewSpec{{
		User: "jane", UID: "7", Groups: []string{"devs", "ops"}, Extra: map[string]authorizationv1.ExtraValue{"scopes": {"a", "b"}},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Version: "v1", Resource: "nodes", Subresource: "metrics", Name: "node1"},
	}}, j.asked)
}

func TestReviewer_AuthorizeAsksAboutTheAnonymousUser(t *testing.T) {
	t.Parallel()
	j := &judge{status: authorizationv1.SubjectAccessReviewStatus{Reason: "no role"}}
	r, _ := j.reviewer(t, access.Config{})
	allowed, reason, err := r.Authorize(t.Context(), metrics(kubeletapi.User{Name: kubeletapi.AnonymousUser, Groups: []string{"system:unauthenticated"}}))
	require.NoError(t, err)
	require.False(t, allowed)
	require.Equal(t, "no role", reason)
	require.Equal(t, "system:anonymous", j.asked[0].User)
	require.Equal(t, []string{"system:unauthenticated"}, j.asked[0].Groups)
	require.Nil(t, j.asked[0].Extra)
}

func TestReviewer_AuthorizeStoresDecisionsForTheirTime(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		config  access.Config
		allowed bool
		ttl     time.Duration
	}{
		{"allowed_by_default_for_5_minutes", access.Config{}, true, 5 * time.Minute},
		{"denied_by_default_for_30_seconds", access.Config{}, false, 30 * time.Second},
		{"allowed", access.Config{AllowedTTL: time.Second, DeniedTTL: time.Hour}, true, time.Second},
		{"denied", access.Config{AllowedTTL: time.Hour, DeniedTTL: time.Second}, false, time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			j := &judge{status: authorizationv1.SubjectAccessReviewStatus{Allowed: c.allowed, Reason: "first"}}
			r, clk := j.reviewer(t, c.config)
			request := metrics(kubeletapi.User{Name: "jane"})
			decides := func(want bool, wantReason string, requests int) {
				t.Helper()
				allowed, reason, err := r.Authorize(t.Context(), request)
				require.NoError(t, err)
				require.Equal(t, want, allowed)
				require.Equal(t, wantReason, reason)
				require.Equal(t, requests, j.requests())
			}
			decides(c.allowed, "first", 1)
			j.status = authorizationv1.SubjectAccessReviewStatus{Allowed: !c.allowed, Reason: "second"}
			clk.SetTime(clk.Now().Add(c.ttl))
			decides(c.allowed, "first", 1)
			clk.SetTime(clk.Now().Add(time.Nanosecond))
			decides(!c.allowed, "second", 2)
		})
	}
}

func TestReviewer_AuthorizeStoresADecisionForEachRequest(t *testing.T) {
	t.Parallel()
	j := &judge{status: authorizationv1.SubjectAccessReviewStatus{Allowed: true}}
	r, _ := j.reviewer(t, access.Config{})
	first := func() kubeletapi.Attributes {
		return metrics(kubeletapi.User{Name: "jane", UID: "7", Groups: []string{"devs"}, Extra: map[string][]string{"a": {"1"}, "b": {"2"}}})
	}
	all := []kubeletapi.Attributes{first()}
	for _, change := range []func(*kubeletapi.Attributes){
		func(a *kubeletapi.Attributes) { a.User.Name = "john" },
		func(a *kubeletapi.Attributes) { a.User.UID = "8" },
		func(a *kubeletapi.Attributes) { a.User.Groups = []string{"devs", "ops"} },
		func(a *kubeletapi.Attributes) { a.User.Groups = nil },
		func(a *kubeletapi.Attributes) { a.User.Extra["a"] = []string{"2"} },
		func(a *kubeletapi.Attributes) { a.Verb = "create" },
		func(a *kubeletapi.Attributes) { a.Subresource = "proxy" },
		func(a *kubeletapi.Attributes) { a.Name = "node2" },
		func(a *kubeletapi.Attributes) { a.User.Name = strings.Repeat("x", 1<<20) },
	} {
		a := first()
		change(&a)
		all = append(all, a)
	}
	for range 3 {
		for _, a := range all {
			_, _, err := r.Authorize(t.Context(), a)
			require.NoError(t, err)
		}
	}
	require.Equal(t, len(all), j.requests())

	// The API server does not get the path, so requests that differ only in it have one decision.
	a := first()
	a.Path = "/metrics/probes"
	_, _, err := r.Authorize(t.Context(), a)
	require.NoError(t, err)
	require.Equal(t, len(all), j.requests())
}

func TestReviewer_AuthorizeStoresALimitedNumberOfDecisions(t *testing.T) {
	t.Parallel()
	j := &judge{status: authorizationv1.SubjectAccessReviewStatus{Allowed: true}}
	r, _ := j.reviewer(t, access.Config{})
	authorize := func(user string) {
		t.Helper()
		_, _, err := r.Authorize(t.Context(), metrics(kubeletapi.User{Name: user}))
		require.NoError(t, err)
	}
	for i := range 8192 {
		authorize(strconv.Itoa(i))
	}
	authorize("0")
	require.Equal(t, 8192, j.requests())
	authorize("another")
	authorize("0")
	require.Equal(t, 8193, j.requests(), "the decision that was used last stays")
	authorize("1")
	require.Equal(t, 8194, j.requests(), "the oldest decision was displaced")
}

func TestReviewer_AuthorizeStoresNoErrors(t *testing.T) {
	t.Parallel()
	j := &judge{err: errors.New("connection refused")}
	r, clk := j.reviewer(t, access.Config{})
	request := metrics(kubeletapi.User{Name: "jane"})
	fails := func(want string) {
		t.Helper()
		allowed, _, err := r.Authorize(t.Context(), request)
		require.ErrorContains(t, err, want)
		require.False(t, allowed)
	}
	fails("create a SubjectAccessReview: connection refused")
	j.err, j.status = nil, authorizationv1.SubjectAccessReviewStatus{Allowed: true, Denied: true}
	fails("the API server both allowed and denied the request")
	j.status.Denied = false
	allowed, _, err := r.Authorize(t.Context(), request)
	require.NoError(t, err)
	require.True(t, allowed)
	require.Equal(t, 3, j.requests())

	// While the API server is away, a stored decision is used for its time only.
	j.err = errors.New("connection refused")
	allowed, _, err = r.Authorize(t.Context(), request)
	require.NoError(t, err)
	require.True(t, allowed)
	clk.SetTime(clk.Now().Add(access.DefaultAllowedTTL + 1))
	fails("connection refused")
}

func TestReviewer_AuthorizeReturnsTheReasonOfADenial(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ reason, evaluationError, want string }{
		{"no role", "", "no role"},
		{"", "role x not found", "role x not found"},
		{"no role", "role x not found", "no role: role x not found"},
	} {
		j := &judge{status: authorizationv1.SubjectAccessReviewStatus{Denied: true, Reason: c.reason, EvaluationError: c.evaluationError}}
		r, _ := j.reviewer(t, access.Config{})
		for range 2 { // the second decision is the stored one
			allowed, reason, err := r.Authorize(t.Context(), metrics(kubeletapi.User{Name: "jane"}))
			require.NoError(t, err)
			require.False(t, allowed)
			require.Equal(t, c.want, reason)
		}
		require.Equal(t, 1, j.requests())
	}
}

func TestReviewer_AnswersConcurrentRequests(t *testing.T) {
	t.Parallel()
	const clients, users = 16, 40
	client := onCreate("subjectaccessreviews", func(r *authorizationv1.SubjectAccessReview) (*authorizationv1.SubjectAccessReview, error) {
		answer := r.DeepCopy()
		answer.Status = authorizationv1.SubjectAccessReviewStatus{Allowed: strings.HasSuffix(r.Spec.User, "0"), Reason: r.Spec.User}
		return answer, nil
	})
	r, err := access.New(access.Config{Client: client})
	require.NoError(t, err)
	var errs [clients]error
	var wait sync.WaitGroup
	for i := range clients {
		wait.Go(func() {
			for n := range users {
				name := strconv.Itoa((n + i) % users)
				allowed, reason, err := r.Authorize(t.Context(), metrics(kubeletapi.User{Name: name}))
				if err != nil || allowed != strings.HasSuffix(name, "0") || reason != name {
					errs[i] = fmt.Errorf("user %s: %t, %q, %w", name, allowed, reason, err)
				}
			}
		})
	}
	wait.Wait()
	require.NoError(t, errors.Join(errs[:]...))
	n := len(client.Actions())
	for user := range users {
		_, _, err := r.Authorize(t.Context(), metrics(kubeletapi.User{Name: strconv.Itoa(user)}))
		require.NoError(t, err)
	}
	require.Len(t, client.Actions(), n, "the decisions of all users are stored")
}

// slow returns a client whose API server does not answer.
func slow(t *testing.T) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://api.test", Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	})})
	require.NoError(t, err)
	return client
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestReviewer_ReviewsEndWithTheirContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, err := access.New(access.Config{Client: slow(t)})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, ok, err := r.ReviewToken(ctx, "good")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.False(t, ok)
		allowed, _, err := r.Authorize(ctx, metrics(kubeletapi.User{Name: "jane"}))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.False(t, allowed)
	})
}

func TestNew_ReportsEveryProblem(t *testing.T) {
	t.Parallel()
	for _, cfg := range []access.Config{{DeniedTTL: -1}, {AllowedTTL: -1}} {
		r, err := access.New(cfg)
		require.Nil(t, r)
		require.ErrorContains(t, err, "Client is required")
		require.ErrorContains(t, err, "must not be negative")
	}
}
