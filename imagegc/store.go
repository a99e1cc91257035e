package imagegc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// Store keeps values by key. Get of an unknown key returns an error that is fs.ErrNotExist,
// and Put replaces a value whole or not at all. The stores of package agent/state are two.
//
// The Manager reads the ages of images once, in its first pass, and puts them at the end of
// passes, one call at a time, by the key "images-seen.json". An error does no harm but to
// the ages: images look younger than they are.
type Store interface {
	Get(ctx context.Context, key string) ([]byte, error)
	Put(ctx context.Context, key string, value []byte) error
}

const agesKey = "images-seen.json"

// agesVersion is the version of the format.
const agesVersion = 1

// agesFile is the value of agesKey.
type agesFile struct {
	Version int `json:"version"`
	ages
}

// ages are those of all images.
type ages struct {
	// SavedAt is when they were saved, by the clock that their times are from: an image is
	// as old on loading as it was then. Without it all look new.
	SavedAt time.Time `json:"savedAt"`
	// Images are by id, or "id,handler" where the runtime keeps images apart by runtime
	// handler.
	Images map[string]age `json:"images"`
}

// age is what must not be forgotten about an image when the agent restarts.
type age struct {
	FirstDetected time.Time `json:"firstDetected"`
	// LastUsed is zero if no container of it was ever listed.
	LastUsed time.Time `json:"lastUsed,omitzero"`
}

// loadAges reads the ages, none if the store has none. Ages that are damaged or of another
// version are an error.
func loadAges(ctx context.Context, store Store) (ages, error) {
	data, err := store.Get(ctx, agesKey)
	if errors.Is(err, fs.ErrNotExist) {
		return ages{}, nil
	}
	var file agesFile
	if err == nil {
		err = json.Unmarshal(data, &file)
	}
	if err == nil && file.Version != agesVersion {
		err = fmt.Errorf("version %d is not %d", file.Version, agesVersion)
	}
	if err != nil {
		return ages{}, fmt.Errorf("read ages of images: %w", err)
	}
	return file.ages, nil
}

// saveAges replaces the ages.
func saveAges(ctx context.Context, store Store, a ages) error {
	data, err := json.Marshal(agesFile{agesVersion, a})
	if err == nil {
		err = store.Put(ctx, agesKey, append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("save ages of images: %w", err)
	}
	return nil
}
