package imagegc

import "context"

// Ages are what a Manager saves.
type Ages = ages

// Age is that of one image.
type Age = age

// LoadAges reads what a Manager has saved.
func LoadAges(ctx context.Context, s Store) (Ages, error) { return loadAges(ctx, s) }

// SaveAges saves as a Manager does.
func SaveAges(ctx context.Context, s Store, a Ages) error { return saveAges(ctx, s, a) }
