package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
)

// checkpointVersion is the version of the checkpoint format. Load returns an error for other
// versions.
const checkpointVersion = 1

// checkpoint is the stored form of a value. Other versions of Kubeparts agents also read stored
// values, so the fields must not change without a new version of the format.
type checkpoint struct {
	Version int             `json:"version"`
	Data    json.RawMessage `json:"data"`
}

// Save stores a value as JSON with the version of the format. It replaces the stored value
// completely: after a crash, the store has the old value or the new value.
func Save(ctx context.Context, store Store, key string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode %s: %w", key, err)
	}
	whole, err := json.Marshal(checkpoint{Version: checkpointVersion, Data: data})
	if err != nil {
		return fmt.Errorf("encode %s: %w", key, err)
	}
	return store.Put(ctx, key, whole)
}

// Load reads a value that Save has stored. A missing key is not an error. If the key is missing
// or Load returns an error, Load does not change *into, so a damaged value is never read
// partially.
func Load[T any](ctx context.Context, store Store, key string, into *T) error {
	whole, err := store.Get(ctx, key)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	value, err := decode[T](whole)
	if err != nil {
		return fmt.Errorf("decode %s: %w", key, err)
	}
	*into = *value
	return nil
}

func decode[T any](whole []byte) (*T, error) {
	var c checkpoint
	if err := json.Unmarshal(whole, &c); err != nil {
		return nil, err
	}
	if c.Version != checkpointVersion {
		return nil, fmt.Errorf("version %d is not supported, want %d", c.Version, checkpointVersion)
	}
	var value *T
	if err := json.Unmarshal(c.Data, &value); err != nil {
		return nil, err
	}
	if value == nil {
		return nil, errors.New("the value has no data")
	}
	return value, nil
}
