package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLastErrorIsNotKnownAtFirst(t *testing.T) {
	t.Parallel()
	l := newLastError()
	require.ErrorIs(t, l.get(), errNotKnownYet)
	l.set(nil)
	require.NoError(t, l.get())
}
