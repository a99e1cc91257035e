package fakecri

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Protocol is the protocol of a [Port].
type Protocol string

// The protocols that programs can serve.
const (
	// HTTP answers requests with 200 while the program is healthy, otherwise with 503. See
	// Port.Paths.
	HTTP Protocol = "http"
	// GRPC answers calls of grpc.health.v1.Health/Check, for any service:
	// SERVING while the program is healthy, otherwise NOT_SERVING.
	GRPC Protocol = "grpc"
	// TCP accepts connections and closes them at once while the program is healthy;
	// otherwise connections are refused.
	TCP Protocol = "tcp"
)

// Port is a port on which a program listens while it runs: on its pod's
// address, or on 127.0.0.1 in a pod on the host's network.
type Port struct {
	// Number is the port's number. Required.
	Number uint16
	// Protocol is the port's protocol. Default HTTP.
	Protocol Protocol
	// Paths maps paths of an HTTP port to fixed status codes. The responses for these paths
	// do not depend on the health of the program.
	Paths map[string]int
}

// Validate returns all problems with p as one joined error.
func (p Port) Validate() error {
	var errs []error
	if p.Number == 0 {
		errs = append(errs, errors.New("field Number is required"))
	}
	switch p.Protocol {
	case "", HTTP, GRPC, TCP:
	default:
		errs = append(errs, fmt.Errorf("field Protocol: %q is not one of %q, %q and %q", p.Protocol, HTTP, GRPC, TCP))
	}
	if len(p.Paths) > 0 && (p.Protocol == GRPC || p.Protocol == TCP) {
		errs = append(errs, fmt.Errorf("field Paths: a %s port cannot have paths", p.Protocol))
	}
	for _, path := range slices.Sorted(maps.Keys(p.Paths)) {
		if !strings.HasPrefix(path, "/") {
			errs = append(errs, fmt.Errorf("field Paths: %q does not begin with a slash", path))
		}
		if code := p.Paths[path]; code < 200 || code > 599 {
			errs = append(errs, fmt.Errorf("field Paths[%q]: %d is not a status code from 200 to 599", path, code))
		}
	}
	return errors.Join(errs...)
}
