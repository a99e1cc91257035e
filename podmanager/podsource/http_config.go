package podsource

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"k8s.io/utils/clock"
)

// HTTPConfig configures an [HTTP].
type HTTPConfig struct {
	// URL is the http or https URL of the manifests. Required.
	URL string
	// Header is sent with each request, for example an Authorization header. It is never
	// logged. Optional.
	Header http.Header
	// Client sends the requests. Configure certificates and proxies in its transport.
	// Default: a new client with the settings of [http.DefaultTransport].
	Client *http.Client
	// NodeName and Owner are as in a [DirectoryConfig]. NodeName is required.
	NodeName string
	Owner    string
	// Period is the time between the end of a request and the next request. After a failure
	// the wait is one second, and doubles with each further failure up to Period. If the
	// server sends a longer Retry-After, Run waits for that time, but at most ten minutes.
	// Run adds a random time of up to a fifth to each wait, so that nodes do not send their
	// requests at the same moment. Default 20s.
	Period time.Duration
	// Timeout is how long one request may take, including its response. Default 10s.
	Timeout time.Duration
	// MaxBytes is the largest size of a response in bytes. Larger responses are rejected.
	// Default 10 MiB.
	MaxBytes int64
	// Clock is the time source, except for Timeout, which always uses the system clock.
	// Default: the system clock.
	Clock clock.Clock
	// Logger receives a line when a problem appears and another when it is resolved.
	// Default: discard.
	Logger *slog.Logger
	// Observer receives events for metrics and health. Optional.
	Observer Observer
}

// Validate returns all problems with c as one joined error.
func (c HTTPConfig) Validate() error {
	var errs []error
	switch u, err := url.Parse(c.URL); {
	case c.URL == "":
		errs = append(errs, errors.New("field URL is required"))
	case err != nil:
		errs = append(errs, errors.New("field URL: cannot be parsed")) // without the text of err, because it may contain a password
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		errs = append(errs, errors.New("field URL: want http://HOST/PATH or https://HOST/PATH"))
	}
	errs = append(errs, checkNodeName(c.NodeName)...)
	for _, f := range []struct {
		name  string
		value int64
	}{{"Period", int64(c.Period)}, {"Timeout", int64(c.Timeout)}, {"MaxBytes", c.MaxBytes}} {
		if f.value < 0 {
			errs = append(errs, fmt.Errorf("field %s: %d is negative", f.name, f.value))
		}
	}
	return errors.Join(errs...)
}

func (c HTTPConfig) withDefaults() HTTPConfig {
	c.Period = cmp.Or(c.Period, 20*time.Second)
	c.Timeout = cmp.Or(c.Timeout, 10*time.Second)
	c.MaxBytes = cmp.Or(c.MaxBytes, 10<<20)
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.Header = c.Header.Clone()
	c.Observer = c.Observer.withDefaults()
	return c
}
