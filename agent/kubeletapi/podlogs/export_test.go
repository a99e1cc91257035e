package podlogs

import (
	"context"
	"io"
	"time"
)

// CopyFast is Copy with short delays for followers.
func CopyFast(ctx context.Context, w io.Writer, src Source, o Options) error {
	return copyLog(ctx, w, src, o, timing{linger: 20 * time.Millisecond, poll: 50 * time.Millisecond})
}

// SortNames returns the names of a log's files in order.
func SortNames(files []string) (out []string) {
	for _, n := range sortNames(files) {
		out = append(out, n.file)
	}
	return out
}
