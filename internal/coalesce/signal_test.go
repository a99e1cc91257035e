package coalesce_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/internal/coalesce"
)

func TestSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s coalesce.Signal
		s.Notify() // without readers
		ctx, cancel := context.WithCancel(t.Context())
		one, two := s.Subscribe(ctx), s.Subscribe(t.Context())
		require.Len(t, one, 1, "the first message must be available at once")
		<-one
		<-two
		s.Notify()
		s.Notify()
		require.Len(t, one, 1, "two changes must result in one message")
		require.Len(t, two, 1)
		<-one

		cancel()
		synctest.Wait()
		_, open := <-one
		require.False(t, open)
		s.Notify()
		require.Len(t, two, 1)
	})
}
