package imagegc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/kubeparts/kubeparts/internal/atomicfile"
)

// FileStore is a Store in a JSON file of this name. Its folder must exist. Whatever a
// crash leaves of a Save, Load returns the ages of that save or of the one before.
type FileStore string

// fileVersion is the version of the file's format.
const fileVersion = 1

// ageFile is the file.
type ageFile struct {
	Version int `json:"version"`
	Ages
}

// Load reads the ages. Without a file there are none. A file that is damaged or of
// another version is an error.
func (f FileStore) Load(context.Context) (Ages, error) {
	data, err := os.ReadFile(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return Ages{}, nil
	}
	var file ageFile
	if err == nil {
		err = json.Unmarshal(data, &file)
	}
	if err == nil && file.Version != fileVersion {
		err = fmt.Errorf("version %d is not %d", file.Version, fileVersion)
	}
	if err != nil {
		return Ages{}, fmt.Errorf("read ages of images from %s: %w", string(f), err)
	}
	return file.Ages, nil
}

// Save replaces the file.
func (f FileStore) Save(_ context.Context, ages Ages) error {
	data, err := json.Marshal(ageFile{fileVersion, ages})
	if err == nil {
		err = atomicfile.Write(string(f), append(data, '\n'), atomicfile.Power)
	}
	if err != nil {
		return fmt.Errorf("save ages of images: %w", err)
	}
	return nil
}
