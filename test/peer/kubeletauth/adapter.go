package kubeletauth

import (
	"context"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/kubeparts/kubeparts/agent/kubeletapi"
)

// Tokens is a [kubeletapi.TokenReviewer] that calls an authenticator of k8s.io/apiserver.
type Tokens struct{ Authenticator authenticator.Request }

// ReviewToken implements [kubeletapi.TokenReviewer].
func (t Tokens) ReviewToken(ctx context.Context, token string) (kubeletapi.User, bool, error) {
	r := &http.Request{Header: http.Header{"Authorization": {"Bearer " + token}}}
	answer, ok, err := t.Authenticator.AuthenticateRequest(r.WithContext(ctx))
	if err != nil || !ok {
		return kubeletapi.User{}, false, err
	}
	u := answer.User
	return kubeletapi.User{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: u.GetExtra()}, true, nil
}

// Authorizer is a [kubeletapi.Authorizer] that calls an authorizer of k8s.io/apiserver.
type Authorizer struct{ Authorizer authorizer.Authorizer }

// Authorize implements [kubeletapi.Authorizer].
func (a Authorizer) Authorize(ctx context.Context, request kubeletapi.Attributes) (bool, string, error) {
	decision, reason, err := a.Authorizer.Authorize(ctx, record(request))
	return decision == authorizer.DecisionAllow, reason, err
}

// record converts the attributes to the type of k8s.io/apiserver.
func record(a kubeletapi.Attributes) authorizer.AttributesRecord {
	return authorizer.AttributesRecord{
		User: &user.DefaultInfo{Name: a.User.Name, UID: a.User.UID, Groups: a.User.Groups, Extra: a.User.Extra},
		Verb: a.Verb, APIVersion: a.APIVersion, Resource: a.Resource, Subresource: a.Subresource, Name: a.Name, Path: a.Path, ResourceRequest: true,
	}
}
