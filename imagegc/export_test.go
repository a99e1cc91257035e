package imagegc

import "context"

// Ages are the ages that a Manager saves.
type Ages = ages

// Age is the age of one image.
type Age = age

// LoadAges reads the ages that a Manager has saved.
func LoadAges(ctx context.Context, s Store) (Ages, error) { return loadAges(ctx, s) }

// SaveAges saves ages in the same way as a Manager.
func SaveAges(ctx context.Context, s Store, a Ages) error { return saveAges(ctx, s, a) }
