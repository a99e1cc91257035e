package imagegc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// FileStore is a Store in a JSON file of this name. Its folder must exist. The
// last version but one is kept beside it, with ".old" at the end, and is used when
// the file is missing or damaged: whatever a crash leaves of a Save, Load has the
// ages of that save or of the one before. The new one is written beside both, with
// ".new" at the end.
type FileStore string

// fileVersion is the version of the file's format.
const fileVersion = 1

// ageFile is the file.
type ageFile struct {
	Version int `json:"version"`
	Ages
}

// Load reads the ages. Without a file there are none. A file that is damaged, with
// no other to take its place, or that is of another version, is an error.
func (f FileStore) Load(context.Context) (Ages, error) {
	var errs []error
	for _, path := range []string{string(f), f.old(), f.next()} {
		ages, err := readAges(path)
		if err == nil {
			return ages, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return Ages{}, errors.Join(errs...)
}

func readAges(path string) (Ages, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Ages{}, fmt.Errorf("read ages of images: %w", err)
	}
	ages, err := decodeAges(data)
	if err != nil {
		return Ages{}, fmt.Errorf("read ages of images from %s: %w", path, err)
	}
	return ages, nil
}

func decodeAges(data []byte) (Ages, error) {
	var file ageFile
	if err := json.Unmarshal(data, &file); err != nil {
		return Ages{}, err
	}
	if file.Version != fileVersion {
		return Ages{}, fmt.Errorf("version %d is not %d", file.Version, fileVersion)
	}
	if _, err := encodeAges(file.Ages); err != nil {
		// Such as a time 24 hours from UTC, which JSON may hold but is never made of.
		return Ages{}, fmt.Errorf("it could not be written again: %w", err)
	}
	return file.Ages, nil
}

// encodeAges writes what decodeAges reads, without the monotonic part of times.
func encodeAges(ages Ages) ([]byte, error) {
	data, err := json.Marshal(ageFile{fileVersion, ages})
	if err != nil {
		return nil, err
	}
	return append(data, '\n'), nil
}

// Save writes the ages to a new file, which takes the place of the last one when
// it is on disk.
func (f FileStore) Save(_ context.Context, ages Ages) error {
	data, err := encodeAges(ages)
	if err == nil {
		err = f.replace(data)
	}
	if err != nil {
		return fmt.Errorf("save ages of images: %w", err)
	}
	return nil
}

// replace needs no sync of the folder: should the renames be lost, what they would
// have replaced is still there.
func (f FileStore) replace(data []byte) error {
	file, err := os.OpenFile(f.next(), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if err := os.Rename(string(f), f.old()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Rename(f.next(), string(f))
}

func (f FileStore) old() string  { return string(f) + ".old" }
func (f FileStore) next() string { return string(f) + ".new" }
