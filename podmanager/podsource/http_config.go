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

// HTTPConfig says what an [HTTP] asks for and for which node.
type HTTPConfig struct {
	// URL is where the manifests are, http or https. Required.
	URL string
	// Header is sent with each request, for example an Authorization. It is in no
	// log. Optional.
	Header http.Header
	// Client sends the requests: certificates and proxies are its matter. Default:
	// one of this source's own, with the settings of [http.DefaultTransport].
	Client *http.Client
	// NodeName and Owner are as in a [DirectoryConfig]. NodeName is required.
	NodeName string
	Owner    string
	// Period is the time between the end of a request and the next one. After a
	// failure the wait is one second, and doubles up to Period, or is what the
	// server asks for with Retry-After, up to ten minutes. A random part of up to a
	// fifth is added to every wait, so that nodes do not ask all at once. Default
	// 20s.
	Period time.Duration
	// Timeout is how long one request may take, its answer included. Default 10s.
	Timeout time.Duration
	// MaxBytes is the size from which on an answer is refused. Default 10 MiB.
	MaxBytes int64
	// Clock is the time source. Timeout is on the system's. Default: the system
	// clock.
	Clock clock.Clock
	// Logger receives structured logs: a line when a problem appears and one when
	// it is gone. Default: discard.
	Logger *slog.Logger
	// Observer receives events for metrics and health. Optional.
	Observer Observer
}

// Validate reports every problem with c, joined.
func (c HTTPConfig) Validate() error {
	var errs []error
	switch u, err := url.Parse(c.URL); {
	case c.URL == "":
		errs = append(errs, errors.New("field URL is required"))
	case err != nil:
		errs = append(errs, errors.New("field URL: it cannot be parsed")) // and may hold a password
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
