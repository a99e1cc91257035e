package kubeletapi

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// debuggingDisabled is the response of a kubelet whose enableDebuggingHandlers is false.
const debuggingDisabled = "Debug endpoints are disabled."

// disabled returns a handler for a path whose feature is off. The handler responds as the kubelet
// does.
func disabled(message string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, message, http.StatusMethodNotAllowed)
	})
}

// withoutDebugging replaces the endpoints for debugging, as the kubelet does if
// enableDebuggingHandlers is false. Some of their paths then respond that they are disabled. The
// other paths do not exist.
func withoutDebugging(all []endpoint) []endpoint {
	all = slices.DeleteFunc(all, func(e endpoint) bool {
		return slices.Contains([]string{
			"run", "exec", "attach", "portForward", "containerLogs", "runningpods", "logs", "debug", // disabled
			"configz", "checkpoint", "statusz", "flagz", // missing
		}, firstSegment(e.pattern))
	})
	for _, path := range []string{
		"/run/", "/exec/", "/attach/", "/portForward/", "/containerLogs/", "/runningpods", "/runningpods/", "/logs/", "/debug/pprof/",
	} {
		all = append(all, endpoint{path, disabled(debuggingDisabled), nil})
	}
	return all
}

// methodsOf returns the methods of an endpoint that changes nothing. Nil means that the endpoint
// accepts any method, as in the kubelet.
func methodsOf(pattern string) []string {
	switch firstSegment(pattern) {
	case "configz", "healthz", "metrics":
		return nil
	default:
		return []string{http.MethodGet}
	}
}

// maxVerbosityBytes is the maximum size of the body of a request to /debug/flags/v.
const maxVerbosityBytes = 64

// setVerbosity sets the log level, as the kubelet's /debug/flags/v does: the body is the verbosity
// of klog. The new level is slog.LevelInfo minus the verbosity: with 0, the program logs no debug
// messages, and with 4, it logs the level Debug.
func (s *Server) setVerbosity(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPut {
		refuse(w, &statusError{code: http.StatusNotAcceptable, message: "unsupported http method"})
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxVerbosityBytes))
	if err != nil {
		refuse(w, badRequestf("error reading request body: %v", err))
		return
	}
	text := strings.TrimSpace(string(body))
	verbosity, err := strconv.ParseUint(text, 10, 31)
	if err != nil {
		refuse(w, badRequest(err))
		return
	}
	s.cfg.LogLevel.Set(slog.LevelInfo - slog.Level(verbosity))
	s.cfg.Logger.InfoContext(r.Context(), "a client changed the log level", "verbosity", verbosity)
	w.Header().Set("Content-Type", plainText)
	fmt.Fprintf(w, "successfully set klog.logging.verbosity to %s\n", text)
}

// debuggingProblems returns the problems with the fields of the endpoints for debugging. These
// endpoints reveal or change things that usually only root may access.
func (c Config) debuggingProblems() (errs []error) {
	for _, f := range []struct {
		name string
		set  bool
	}{{"Checkpoints", c.Checkpoints != nil}, {"SystemLogs", c.SystemLogs != ""}, {"LogLevel", c.LogLevel != nil}} {
		if f.set && !c.Access.Authenticates() {
			errs = append(errs, fmt.Errorf("field %s: requires Access.TokenFile, ClientCAFile or TokenReviewer, because every user of this machine could send requests", f.name))
		}
	}
	if (c.Checkpoints == nil) != (c.CheckpointDir == "") {
		errs = append(errs, errors.New("fields Checkpoints and CheckpointDir: both must be set, or neither"))
	}
	if c.Journal != nil && c.SystemLogs == "" {
		errs = append(errs, errors.New("field Journal: requires SystemLogs"))
	}
	return errs
}

// debugEndpoints returns the endpoints /statusz, /flagz, /checkpoint, /logs and /debug/flags/v. If
// Pprof is off, it also returns the endpoint that responds that profiles are disabled.
func (s *Server) debugEndpoints() (all []endpoint) {
	c, get := s.cfg, []string{http.MethodGet}
	all = append(all, endpoint{"/statusz", withTimeLimit(http.HandlerFunc(s.statusz)), nil})
	if c.Flags != nil {
		all = append(all, endpoint{"/flagz", withTimeLimit(http.HandlerFunc(s.flagz)), nil})
	}
	if c.Checkpoints != nil {
		all = append(all, endpoint{"/checkpoint/{namespace}/{pod}/{container}", s.stream(s.checkpoint), []string{http.MethodPost}})
	}
	if c.SystemLogs != "" {
		all = append(all, endpoint{"/logs/", s.stream(s.systemLogs), get})
	} else {
		all = append(all, endpoint{"/logs/", disabled("logs endpoint is disabled."), nil})
	}
	if c.LogLevel != nil {
		all = append(all, endpoint{"/debug/flags/v", withTimeLimit(http.HandlerFunc(s.setVerbosity)), nil})
	} else {
		all = append(all, endpoint{"/debug/flags/v", disabled("flags endpoint is disabled."), nil})
	}
	if !c.Pprof {
		all = append(all, endpoint{"/debug/pprof/", disabled("profiling endpoint is disabled."), nil})
	}
	return all
}
