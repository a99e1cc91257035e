package imagegc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"
)

// Store stores values by key. Get returns an error that wraps fs.ErrNotExist if the key is
// unknown, and Put replaces a value atomically. Package agent/state has two
// implementations.
//
// The Manager reads the ages of images once, in its first pass, and saves them at the end
// of passes, one call at a time, with the key "images-seen.json". An error affects only
// the ages: after a restart, images may then count as younger or older than they are.
type Store interface {
	Get(ctx context.Context, key string) ([]byte, error)
	Put(ctx context.Context, key string, value []byte) error
}

const agesKey = "images-seen.json"

// agesVersion is the version of the format.
const agesVersion = 1

// agesFile is what is stored with the key agesKey, as JSON.
type agesFile struct {
	Version int `json:"version"`
	ages
}

// ages are the ages of all images.
type ages struct {
	// SavedAt is when the ages were saved, by the same clock as the times in Images. After
	// a restart, an image is as old as it was at SavedAt. If SavedAt is zero, all images
	// count as new.
	SavedAt time.Time `json:"savedAt"`
	// Images is keyed by id, or by "id,handler" if the runtime has separate images for
	// each runtime handler.
	Images map[string]age `json:"images"`
}

// age is what must be known about an image after a restart of the agent.
type age struct {
	FirstDetected time.Time `json:"firstDetected"`
	// LastUsed is zero if no container that uses the image was ever listed.
	LastUsed time.Time `json:"lastUsed,omitzero"`
}

// loadAges reads the ages, which are empty if nothing is stored. It returns an error if
// the stored value is damaged or has another version.
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
		err = fmt.Errorf("unsupported version %d of the file, want %d", file.Version, agesVersion)
	}
	if err != nil {
		return ages{}, fmt.Errorf("read ages of images: %w", err)
	}
	return file.ages, nil
}

// saveAges writes the ages.
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
