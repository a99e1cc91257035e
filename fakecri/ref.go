package fakecri

import "github.com/kubeparts/kubeparts/internal/imageref"

// parseRef parses an image reference as container runtimes do: the default tag is latest,
// and a tag is ignored if the reference has a digest.
func parseRef(s string) (imageref.Ref, error) {
	ref, err := imageref.Parse(s)
	if err != nil {
		return imageref.Ref{}, err
	}
	if ref.Digest != "" {
		ref.Tag = ""
	}
	return ref.WithDefaultTag(), nil
}
