package kubeletapi

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// refusalsPerMinute limits the lines about refused requests in the log, because any client can
	// cause any number of these lines.
	refusalsPerMinute = 60
	maxLoggedPath     = 200
)

// refusalLog logs refused requests, one line each, up to refusalsPerMinute. The first line of a
// later minute has the number of omitted lines.
type refusalLog struct {
	to    *slog.Logger
	clock clock.PassiveClock

	mu      sync.Mutex
	began   time.Time // of the current minute
	logged  int       // lines in the current minute
	omitted int       // lines that were omitted after the last line
}

// log logs a refused request. It does not log the query of the request, which may have secrets.
func (l *refusalLog) log(r *http.Request, no *refusal) {
	path := r.URL.Path
	if len(path) > maxLoggedPath {
		path = path[:maxLoggedPath] + "..."
	}
	if to := l.next(); to != nil {
		to.WarnContext(r.Context(), "refused a request", "code", no.code, "method", r.Method, "path", path, "client", r.RemoteAddr, "user", no.user, "err", no.err)
	}
}

// invalid logs a connection that has ended after an incomplete or invalid request. net/http has
// already responded with 400 or 431, or has closed the connection after the time limit of a
// request.
func (l *refusalLog) invalid(ctx context.Context, client string) {
	if to := l.next(); to != nil {
		to.WarnContext(ctx, "closed a connection, because the client sent an invalid, too large or incomplete request", "client", client)
	}
}

// next returns the logger for the next line, or nil if the line must be omitted.
func (l *refusalLog) next() *slog.Logger {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.clock.Now(); now.Sub(l.began) >= time.Minute {
		l.began, l.logged = now, 0
	}
	if l.logged >= refusalsPerMinute {
		l.omitted++
		return nil
	}
	l.logged++
	to := l.to
	if l.omitted > 0 {
		to = to.With("omittedLines", l.omitted)
		l.omitted = 0
	}
	return to
}
