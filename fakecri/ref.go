package fakecri

import "github.com/kubeparts/kubeparts/internal/imageref"

// parseRef reads an image reference as container runtimes do: without a tag it refers to
// the latest, and a tag beside a digest has no meaning.
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
