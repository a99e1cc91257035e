package wirelist

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"
)

// Config configures a [Lister].
type Config struct {
	// Conn is a connection to the runtime, such as a *grpc.ClientConn. The caller closes
	// it. Conn must honour the call options, because each call sets the codec with which
	// the responses are decoded. Required.
	Conn grpc.ClientConnInterface
	// MaxMessageBytes is the size of the largest message that the Lister accepts. Default
	// 16 MiB, which is also containerd's default limit for sending.
	MaxMessageBytes int
	// Timeout is the time limit for a list whose context has no deadline. It is measured
	// in real time, like the timeout of a CRI client. Default 2m, the kubelet's timeout
	// for these calls.
	Timeout time.Duration
}

// Validate reports every problem with c, joined.
func (c Config) Validate() error {
	var errs []error
	if c.Conn == nil {
		errs = append(errs, errors.New("field Conn is required"))
	}
	if c.MaxMessageBytes < 0 {
		errs = append(errs, fmt.Errorf("field MaxMessageBytes: %d is negative", c.MaxMessageBytes))
	}
	if c.Timeout < 0 {
		errs = append(errs, fmt.Errorf("field Timeout: %v is negative", c.Timeout))
	}
	return errors.Join(errs...)
}

func (c Config) withDefaults() Config {
	if c.MaxMessageBytes == 0 {
		c.MaxMessageBytes = 16 << 20
	}
	if c.Timeout == 0 {
		c.Timeout = 2 * time.Minute
	}
	return c
}
