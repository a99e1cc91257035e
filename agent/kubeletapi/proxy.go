package kubeletapi

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubeparts/kubeparts/agent"
)

// streamEndpoints returns the endpoints of streams and of commands.
func (s *Server) streamEndpoints() (all []endpoint) {
	container := func(path string, h http.HandlerFunc, methods ...string) {
		for _, pattern := range []string{path + "/{namespace}/{pod}/{container}", path + "/{namespace}/{pod}/{uid}/{container}"} {
			all = append(all, endpoint{pattern, s.stream(h), methods})
		}
	}
	container("/exec", s.exec, http.MethodGet, http.MethodPost)
	container("/attach", s.attach, http.MethodGet, http.MethodPost)
	container("/run", s.run, http.MethodPost)
	for _, pattern := range []string{"/portForward/{namespace}/{pod}", "/portForward/{namespace}/{pod}/{uid}"} {
		all = append(all, endpoint{pattern, s.stream(s.portForward), []string{http.MethodGet, http.MethodPost}})
	}
	if s.cfg.Streams == nil {
		for i := range all {
			all[i].handler = disabled(debuggingDisabled)
		}
	}
	return all
}

// exec connects the client with a command in a container.
func (s *Server) exec(w http.ResponseWriter, r *http.Request) {
	pod, id, streams, err := s.requestedStreams(r)
	if err != nil {
		refuse(w, err)
		return
	}
	s.connect(w, r, stream{subresource: "exec", runs: s.containerRuns(pod, id), wanted: streams, open: func(ctx context.Context) (string, error) {
		answer, err := s.cfg.Streams.Exec(ctx, &runtimeapi.ExecRequest{
			ContainerId: id, Cmd: r.URL.Query()[corev1.ExecCommandParam],
			Tty: streams.tty, Stdin: streams.stdin, Stdout: streams.stdout, Stderr: streams.stderr,
		})
		return answer.GetUrl(), err
	}})
}

// attach connects the client with the main process of a container.
func (s *Server) attach(w http.ResponseWriter, r *http.Request) {
	pod, id, streams, err := s.requestedStreams(r)
	if err != nil {
		refuse(w, err)
		return
	}
	s.connect(w, r, stream{subresource: "attach", runs: s.containerRuns(pod, id), wanted: streams, open: func(ctx context.Context) (string, error) {
		answer, err := s.cfg.Streams.Attach(ctx, &runtimeapi.AttachRequest{
			ContainerId: id, Tty: streams.tty, Stdin: streams.stdin, Stdout: streams.stdout, Stderr: streams.stderr,
		})
		return answer.GetUrl(), err
	}})
}

// portForward connects the client with ports of a pod.
func (s *Server) portForward(w http.ResponseWriter, r *http.Request) {
	ports, err := requestedPorts(r)
	if err != nil {
		refuse(w, badRequest(err))
		return
	}
	pod, err := s.requestedPod(r)
	if err != nil {
		refuse(w, err)
		return
	}
	sandbox := pod.Runtime.ReadySandbox()
	if sandbox == nil {
		refuse(w, notFound("pod %q has no ready sandbox", pod.Spec.Name))
		return
	}
	s.connect(w, r, stream{subresource: "portforward", runs: s.sandboxReady(pod.Spec.UID, sandbox.GetId()), open: func(ctx context.Context) (string, error) {
		answer, err := s.cfg.Streams.PortForward(ctx, &runtimeapi.PortForwardRequest{PodSandboxId: sandbox.GetId(), Port: ports})
		return answer.GetUrl(), err
	}})
}

// run runs a command in a container, and responds with its output when the command has ended.
func (s *Server) run(w http.ResponseWriter, r *http.Request) {
	_, id, err := s.runningContainer(r)
	if err != nil {
		refuse(w, err)
		return
	}
	command := strings.Split(r.URL.Query().Get("cmd"), " ")
	stdout, stderr, err := s.cfg.Streams.ExecSync(r.Context(), id, command, 0)
	if err != nil {
		refuse(w, runtimeError(err))
		return
	}
	w.Header().Set("Content-Type", plainText)
	if _, err := w.Write(append(stdout, stderr...)); err != nil {
		s.cfg.Logger.DebugContext(r.Context(), "could not send the output of a command", "pod", r.PathValue("namespace")+"/"+r.PathValue("pod"), "err", err)
	}
}

// requestedStreams returns the pod and the ID of the running container that a request for exec or
// attach names, and the streams that the client wants.
func (s *Server) requestedStreams(r *http.Request) (pod types.UID, id string, wanted streams, err error) {
	if wanted, err = parseStreams(r.URL.Query()); err != nil {
		return "", "", wanted, badRequest(err)
	}
	pod, id, err = s.runningContainer(r)
	return pod, id, wanted, err
}

// streams are the streams that a client of exec or attach requests.
type streams struct{ stdin, stdout, stderr, tty bool }

// parseStreams parses the parameters of exec and attach, as the kubelet does.
func parseStreams(query url.Values) (streams, error) {
	set := func(name string) bool { return query.Get(name) == "1" }
	s := streams{set(corev1.ExecStdinParam), set(corev1.ExecStdoutParam), set(corev1.ExecStderrParam), set(corev1.ExecTTYParam)}
	s.stderr = s.stderr && !s.tty // a terminal has one output
	if !s.stdin && !s.stdout && !s.stderr {
		return s, errors.New("you must specify at least 1 of stdin, stdout, stderr")
	}
	return s, nil
}

// requestedPorts returns the ports of a port-forward from the query parameters named port. Each of
// these parameters may list several ports, separated by commas. A client that uses WebSocket
// without SPDY must send at least one of these parameters. A client that uses SPDY names a port
// when it opens a connection to the port.
func requestedPorts(r *http.Request) (ports []int32, err error) {
	parameters := r.URL.Query()[corev1.PortHeader]
	if len(parameters) == 0 && isWebSocket(r) && tunnelProtocol(r) == "" {
		return nil, errors.New(`query parameter "port" is required`) // as in the kubelet
	}
	for _, text := range parameters {
		for part := range strings.SplitSeq(text, ",") {
			port, err := strconv.ParseUint(part, 10, 16)
			if err != nil || port == 0 {
				return nil, fmt.Errorf("unable to parse %q as a port: want a number from 1 to 65535", part)
			}
			ports = append(ports, int32(port))
		}
	}
	return ports, nil
}

// requestedPod returns the pod that a request names. If the request has a UID, it must be the UID
// of the pod.
func (s *Server) requestedPod(r *http.Request) (agent.Pod, error) {
	namespace, name := r.PathValue("namespace"), r.PathValue("pod")
	pod, ok := s.findPod(namespace, name)
	if uid := r.PathValue("uid"); !ok || uid != "" && uid != string(pod.Spec.UID) {
		return agent.Pod{}, notFound("pod %q not found in namespace %q", name, namespace)
	}
	return pod, nil
}

// runningContainer returns the pod's UID and the ID of the running container that a request names.
func (s *Server) runningContainer(r *http.Request) (uid types.UID, id string, err error) {
	pod, err := s.requestedPod(r)
	if err != nil {
		return "", "", err
	}
	name := r.PathValue("container")
	c := pod.Runtime.Container(name)
	if c == nil || c.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return "", "", notFound("container not found (%q): pod %q has no running container of this name", name, pod.Spec.Name)
	}
	return pod.Spec.UID, c.GetId(), nil
}

// containerRuns returns a function that reports whether the agent has observed the container of a
// pod as running.
func (s *Server) containerRuns(uid types.UID, id string) func() bool {
	return func() bool {
		pod, ok := s.cfg.Agent.Pod(uid)
		return ok && slices.ContainsFunc(pod.Runtime.Containers, func(c *runtimeapi.ContainerStatus) bool {
			return c.GetId() == id && c.GetState() == runtimeapi.ContainerState_CONTAINER_RUNNING
		})
	}
}

// sandboxReady returns a function that reports whether the agent has observed the sandbox of a pod
// as ready.
func (s *Server) sandboxReady(uid types.UID, id string) func() bool {
	return func() bool {
		pod, ok := s.cfg.Agent.Pod(uid)
		return ok && pod.Runtime.ReadySandbox().GetId() == id
	}
}

// runtimeError returns an error of the runtime with the HTTP code that the kubelet uses for the
// error.
func runtimeError(err error) error {
	if code := grpcstatus.Code(err); code == codes.NotFound {
		return notFound("%v", err)
	} else if code == codes.ResourceExhausted {
		return &statusError{code: http.StatusTooManyRequests, message: err.Error()}
	}
	return err
}
