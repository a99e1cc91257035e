//go:build !linux

package stats

import (
	"context"
	"errors"
	"fmt"

	"github.com/kubeparts/kubeparts/eviction"
)

// Watch implements [eviction.Waker]. On this operating system, Watch only returns an error.
func (p *Provider) Watch(context.Context, func() []eviction.Level, func(reason string)) error {
	return fmt.Errorf("watch: not supported on this operating system: %w", errors.ErrUnsupported)
}
