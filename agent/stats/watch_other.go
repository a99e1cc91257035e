//go:build !linux

package stats

import (
	"context"
	"errors"
	"fmt"

	"github.com/kubeparts/kubeparts/eviction"
)

// Watch implements [eviction.Waker] where the kernel offers anything to watch,
// which is on Linux. Here it says so at once.
func (p *Provider) Watch(context.Context, func() []eviction.Level, func(reason string)) error {
	return fmt.Errorf("watch: not on this system: %w", errors.ErrUnsupported)
}
