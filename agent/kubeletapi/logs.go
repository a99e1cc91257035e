package kubeletapi

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/kubeparts/kubeparts/agent/kubeletapi/podlogs"
	"github.com/kubeparts/kubeparts/internal/printable"
)

// logs responds with the log of a container. Its query parameters are those of the kubelet's
// containerLogs. The names in the URL select a pod and a container, but never become part of a
// file path.
func (s *Server) logs(w http.ResponseWriter, r *http.Request) {
	options, previous, err := parseLogQuery(r.URL.Query(), s.cfg.Clock.Now())
	if err != nil {
		refuse(w, badRequest(err))
		return
	}
	source, err := s.findLog(r.PathValue("namespace"), r.PathValue("pod"), r.PathValue("container"), previous)
	if err != nil {
		refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", plainText)
	out := &counted{ResponseWriter: w}
	switch err := podlogs.Copy(r.Context(), out, source, options); {
	case err == nil || r.Context().Err() != nil:
	case out.written:
		// The client already has the status code. This line reports that the log is incomplete.
		fmt.Fprintf(w, "\nerror: could not read the rest of the log: %s\n", printable.Line(err.Error()))
	case errors.Is(err, podlogs.ErrNoLog):
		refuse(w, notFound("container %q in pod %q: %v", r.PathValue("container"), r.PathValue("pod"), err))
	default:
		refuse(w, err)
	}
}

// counted records whether a part of the response was written.
type counted struct {
	http.ResponseWriter
	written bool
}

func (c *counted) Write(data []byte) (int, error) {
	c.written = true
	return c.ResponseWriter.Write(data)
}

// Flush sends the header and the data written so far.
func (c *counted) Flush() {
	c.written = true
	flush(c.ResponseWriter)
}

// Unwrap returns the writer for [http.ResponseController].
func (c *counted) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// parseLogQuery parses the parameters of a log request. The error names every invalid
// parameter.
func parseLogQuery(query url.Values, now time.Time) (o podlogs.Options, previous bool, err error) {
	var errs []error
	one := func(name string, parse func(text string) error) {
		switch values := query[name]; {
		case len(values) > 1:
			errs = append(errs, fmt.Errorf("%s: given %d times, must be given once", name, len(values)))
		case len(values) == 1 && values[0] != "":
			if err := parse(values[0]); err != nil {
				errs = append(errs, fmt.Errorf("%s=%q: %w", name, values[0], err))
			}
		}
	}
	for name, into := range map[string]*bool{"follow": &o.Follow, "previous": &previous, "timestamps": &o.Timestamps} {
		if *into, err = boolQuery(query, name); err != nil {
			errs = append(errs, err)
		}
	}
	one("tailLines", func(text string) error {
		if text == "all" {
			return nil
		}
		n, err := atLeast(0, text)
		o.TailLines = &n
		return err
	})
	one("limitBytes", func(text string) (err error) {
		o.LimitBytes, err = atLeast(1, text)
		return err
	})
	one("sinceSeconds", func(text string) error {
		n, err := atLeast(1, text)
		o.Since = now.Add(-time.Duration(min(n, int64(maxSince/time.Second))) * time.Second)
		return err
	})
	one("sinceTime", func(text string) (err error) {
		if query.Get("sinceSeconds") != "" {
			return errors.New("must not be used with sinceSeconds")
		}
		if o.Since, err = time.Parse(time.RFC3339Nano, text); err != nil {
			return errors.New("must be a time such as 2006-01-02T15:04:05Z")
		}
		return nil
	})
	one("stream", func(text string) error {
		switch text {
		case "All":
		case "Stdout", "Stderr":
			o.Stream = podlogs.Stream(strings.ToLower(text))
		default:
			return errors.New("must be All, Stdout or Stderr")
		}
		return nil
	})
	return o, previous, errors.Join(errs...)
}

// maxSince limits sinceSeconds, so that the computed time does not overflow.
const maxSince = 100 * 365 * 24 * time.Hour

func atLeast(least int64, text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < least {
		return least, fmt.Errorf("must be a number of at least %d", least)
	}
	return n, nil
}
