package state_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/kubeparts/kubeparts/agent/state"
)

// record is a value with a field that decoding sets before it detects the damage of a
// checkpoint.
type record struct {
	Name  string         `json:"name"`
	Count map[string]int `json:"count"`
}

func TestSave_IsReadByLoad(t *testing.T) {
	t.Parallel()
	stores(t, func(t *testing.T, store state.Store) {
		t.Helper()
		saved := record{Name: "first", Count: map[string]int{"a": 1}}
		require.NoError(t, state.Save(t.Context(), store, "record.json", saved))
		loaded := record{Count: map[string]int{"b": 2}}
		require.NoError(t, state.Load(t.Context(), store, "record.json", &loaded))
		require.Equal(t, saved, loaded, "the previous value must be replaced completely")
	})
}

func TestSave_HasTheFormatOfEarlierAgents(t *testing.T) {
	t.Parallel()
	store := state.Memory()
	require.NoError(t, state.Save(t.Context(), store, "images.json", map[string]bool{"sha256:1": true}))
	text, err := store.Get(t.Context(), "images.json")
	require.NoError(t, err)
	require.JSONEq(t, `{"version":1,"data":{"sha256:1":true}}`, string(text))
}

func TestSave_ErrorOfInvalidJSONNamesTheKey(t *testing.T) {
	t.Parallel()
	err := state.Save(t.Context(), state.Memory(), "record.json", func() {})
	require.ErrorContains(t, err, "encode record.json: json: unsupported type")
}

func TestLoad_MissingKeyLeavesVariableUnchanged(t *testing.T) {
	t.Parallel()
	before := record{Name: "default"}
	require.NoError(t, state.Load(t.Context(), state.Memory(), "record.json", &before))
	require.Equal(t, record{Name: "default"}, before)
}

func TestLoad_DamagedValueLeavesVariableUnchanged(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ text, message string }{
		"empty":         {"", "decode record.json: unexpected end of JSON input"},
		"cut":           {`{"version":1,"data":{"name":"x"`, "decode record.json: unexpected end of JSON input"},
		"other version": {`{"version":2,"data":{"name":"x"}}`, "decode record.json: version 2 is not supported, want 1"},
		"no version":    {`{"name":"x"}`, "decode record.json: version 0 is not supported, want 1"},
		"other type":    {`{"version":1,"data":{"name":"x","count":7}}`, "decode record.json: json: cannot unmarshal"},
		"null":          {`{"version":1,"data":null}`, "decode record.json: the value has no data"},
		"no data":       {`{"version":1}`, "decode record.json: unexpected end of JSON input"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := state.Memory()
			require.NoError(t, store.Put(t.Context(), "record.json", []byte(c.text)))
			into := record{Name: "default"}
			require.ErrorContains(t, state.Load(t.Context(), store, "record.json", &into), c.message)
			require.Equal(t, record{Name: "default"}, into)
		})
	}
}

func TestLoad_ReturnsTheErrorOfTheStore(t *testing.T) {
	t.Parallel()
	broken := errors.New("the disk is broken")
	var into record
	require.ErrorIs(t, state.Load(t.Context(), brokenStore{state.Memory(), broken}, "record.json", &into), broken)
}

// brokenStore is a store whose reads fail.
type brokenStore struct {
	state.Store
	err error
}

func (s brokenStore) Get(context.Context, string) ([]byte, error) { return nil, s.err }
