package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
)

// checkpointVersion is the version of the checkpoint format. Other versions are not read.
const checkpointVersion = 1

// checkpoint is the stored form of a value. Other versions of Kubeparts agents read it, so its
// fields must not change without a new version.
type checkpoint struct {
	Version int             `json:"version"`
	Data    json.RawMessage `json:"data"`
}

// Save stores a value as JSON with the version of the format. The stored value is replaced as a
// whole: after a crash it is the old one or the new one.
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
// or an error is returned, the variable that into points to is unchanged: a damaged value is
// not read partially.
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
