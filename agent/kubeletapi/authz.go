package kubeletapi

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/kubeparts/kubeparts/internal/printable"
)

// Attributes describe a request for an [Authorizer]. With the feature gate KubeletFineGrainedAuthz,
// the kubelet has the same attributes for the same path and method.
type Attributes struct {
	// User is the user of the request. An Authorizer must not modify it.
	User User
	// Verb is get, create, update, patch or delete, for the methods GET, POST, PUT, PATCH and
	// DELETE. It is empty for other methods.
	Verb string
	// APIVersion is always v1, and Resource is always nodes.
	APIVersion, Resource string
	// Subresource is stats, metrics, log, checkpoint, statusz, pods, healthz, configz or proxy. It
	// is proxy for the paths below /agent/.
	Subresource string
	// Name is the name of the node.
	Name string
	// Path is the path of the request.
	Path string
}

// Authorizer decides which requests a user may make, as a SubjectAccessReview does in Kubernetes.
// Requests call it concurrently. The server stores no decisions.
type Authorizer interface {
	// Authorize reports whether a user may make a request. The returned reason is for the log. If
	// Authorize returns false, the server calls it a second time for some paths, with the
	// subresource proxy. If Authorize returns an error, the server responds with 500.
	Authorize(ctx context.Context, a Attributes) (allowed bool, reason string, err error)
}

// authorize returns nil if the user may make the request, and otherwise a refusal. The texts for
// the client are the kubelet's.
func (s *Server) authorize(ctx context.Context, user User, r *http.Request) *refusal {
	all, verb, name := subresources(r.URL.Path), verb(r.Method), printable.Line(user.Name)
	forbidden := &refusal{
		code: http.StatusForbidden, user: user.Name, err: errAnonymous,
		text: fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=%v)\n", name, verb, all),
	}
	if s.cfg.Access.Authorizer == nil {
		if user.Name != AnonymousUser || onReadOnlyPort(r.URL.Path) && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
			return nil
		}
		return forbidden
	}
	for _, subresource := range all {
		allowed, reason, err := s.cfg.Access.Authorizer.Authorize(ctx, Attributes{
			User: user, Verb: verb, APIVersion: "v1", Resource: "nodes", Subresource: subresource,
			Name: s.nodeName(), Path: r.URL.Path,
		})
		switch {
		case err != nil:
			return &refusal{
				code: http.StatusInternalServerError, user: user.Name, err: fmt.Errorf("authorize verb %q of nodes/%s: %w", verb, subresource, err),
				text: fmt.Sprintf("Authorization error (user=%s, verb=%s, resource=nodes, subresource=%s)", name, verb, subresource),
			}
		case allowed:
			return nil
		}
		forbidden.err = fmt.Errorf("the user may not %q nodes/%s: %s", verb, subresource, reason)
	}
	return forbidden
}

func (s *Server) nodeName() string {
	if node := s.cfg.Agent.Node(); node != nil {
		return node.Name
	}
	return ""
}

// verb returns the verb of Kubernetes for a method.
func verb(method string) string {
	switch method {
	case http.MethodGet:
		return "get"
	case http.MethodPost:
		return "create"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	default:
		return ""
	}
}

// subresources returns the subresources of a path. A user who may access any of these subresources
// may request the path.
func subresources(path string) []string {
	switch firstSegment(path) {
	case "pods", "runningpods":
		return []string{"pods", "proxy"}
	case "healthz":
		return []string{"healthz", "proxy"}
	case "configz":
		return []string{"configz", "proxy"}
	case "flagz":
		return []string{"configz"}
	case "stats":
		return []string{"stats"}
	case "metrics":
		return []string{"metrics"}
	case "logs":
		return []string{"log"}
	case "checkpoint":
		return []string{"checkpoint"}
	case "statusz":
		return []string{"statusz"}
	default:
		return []string{"proxy"}
	}
}

// firstSegment returns the part of an absolute path between its first and its second slash.
func firstSegment(path string) string {
	rest, ok := strings.CutPrefix(path, "/")
	if !ok {
		return ""
	}
	segment, _, _ := strings.Cut(rest, "/")
	return segment
}
