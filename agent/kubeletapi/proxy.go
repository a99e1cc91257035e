package kubeletapi

import (
	"bufio"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-logr/logr"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/proxy"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/klog/v2"

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
			all[i].handler = http.HandlerFunc(streamsDisabled)
		}
	}
	return all
}

// streamsDisabled is the response of a kubelet whose enableDebuggingHandlers is false.
func streamsDisabled(w http.ResponseWriter, _ *http.Request) {
	http.Error(w, "Debug endpoints are disabled.", http.StatusMethodNotAllowed)
}

// exec connects the client with a command in a container.
func (s *Server) exec(w http.ResponseWriter, r *http.Request) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		refuse(w, badRequest(err))
		return
	}
	id, err := s.runningContainer(r)
	if err != nil {
		refuse(w, err)
		return
	}
	answer, err := s.cfg.Streams.Exec(r.Context(), &runtimeapi.ExecRequest{
		ContainerId: id, Cmd: r.URL.Query()[corev1.ExecCommandParam],
		Tty: options.TTY, Stdin: options.Stdin, Stdout: options.Stdout, Stderr: options.Stderr,
	})
	s.proxy(w, r, answer.GetUrl(), err)
}

// attach connects the client with the main process of a container.
func (s *Server) attach(w http.ResponseWriter, r *http.Request) {
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		refuse(w, badRequest(err))
		return
	}
	id, err := s.runningContainer(r)
	if err != nil {
		refuse(w, err)
		return
	}
	answer, err := s.cfg.Streams.Attach(r.Context(), &runtimeapi.AttachRequest{
		ContainerId: id, Tty: options.TTY, Stdin: options.Stdin, Stdout: options.Stdout, Stderr: options.Stderr,
	})
	s.proxy(w, r, answer.GetUrl(), err)
}

// portForward connects the client with ports of a pod.
func (s *Server) portForward(w http.ResponseWriter, r *http.Request) {
	options, err := portforward.NewV4Options(r)
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
	answer, err := s.cfg.Streams.PortForward(r.Context(), &runtimeapi.PortForwardRequest{PodSandboxId: sandbox.GetId(), Port: options.Ports})
	s.proxy(w, r, answer.GetUrl(), err)
}

// run runs a command in a container, and responds with its output when the command has ended.
func (s *Server) run(w http.ResponseWriter, r *http.Request) {
	id, err := s.runningContainer(r)
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

// requestedPod returns the pod that a request names. If the request has a UID, it must be that
// of the pod.
func (s *Server) requestedPod(r *http.Request) (agent.Pod, error) {
	namespace, name := r.PathValue("namespace"), r.PathValue("pod")
	pod, ok := s.findPod(namespace, name)
	if uid := r.PathValue("uid"); !ok || uid != "" && uid != string(pod.Spec.UID) {
		return agent.Pod{}, notFound("pod %q not found in namespace %q", name, namespace)
	}
	return pod, nil
}

// runningContainer returns the ID of the running container that a request names.
func (s *Server) runningContainer(r *http.Request) (string, error) {
	pod, err := s.requestedPod(r)
	if err != nil {
		return "", err
	}
	name := r.PathValue("container")
	c := pod.Runtime.Container(name)
	if c == nil || c.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING {
		return "", notFound("container not found (%q): pod %q has no running container of this name", name, pod.Spec.Name)
	}
	return c.GetId(), nil
}

// proxy connects the client with the stream that the runtime serves at target. It returns when
// one side has closed the stream, or the request's context is done. err is the error of the
// runtime.
func (s *Server) proxy(w http.ResponseWriter, r *http.Request, target string, err error) {
	if err != nil {
		refuse(w, runtimeError(err))
		return
	}
	location, err := url.Parse(target)
	if err != nil {
		refuse(w, err)
		return
	}
	r = r.Clone(klog.NewContext(r.Context(), logr.FromSlogHandler(s.cfg.Logger.Handler())))
	r.Header.Del("Authorization") // the token is not for the runtime
	upgrade := &hijacker{ResponseWriter: w, ctx: r.Context()}
	defer upgrade.release()
	proxy.NewUpgradeAwareHandler(location, nil, false, true, responder{s.cfg.Logger}).ServeHTTP(upgrade, r)
}

// responder responds to requests that cannot be proxied.
type responder struct{ log *slog.Logger }

// Error implements [proxy.ErrorResponder].
func (p responder) Error(w http.ResponseWriter, r *http.Request, err error) {
	p.log.WarnContext(r.Context(), "could not connect a client with the runtime's stream", "path", r.URL.Path, "err", err)
	refuse(w, err)
}

// hijacker is a writer whose connection is closed when ctx is done. After a Hijack the server
// does not close the connection.
type hijacker struct {
	http.ResponseWriter
	ctx  context.Context
	stop func() bool
	done func()
}

// Hijack implements [http.Hijacker].
func (h *hijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	done := holdConnection(h.ctx)
	conn, buffer, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		done()
		return nil, nil, err
	}
	h.done, h.stop = done, context.AfterFunc(h.ctx, func() { _ = conn.Close() }) // the proxy returns the error
	return conn, buffer, nil
}

// release ends the watch of the context.
func (h *hijacker) release() {
	if h.stop != nil {
		h.stop()
		h.done()
	}
}

// runtimeError returns an error of the runtime with the HTTP code that the kubelet has for it.
func runtimeError(err error) error {
	switch grpcstatus.Code(err) {
	case codes.NotFound:
		return notFound("%v", err)
	case codes.ResourceExhausted:
		return &statusError{code: http.StatusTooManyRequests, message: err.Error()}
	}
	return err
}
