package images

// SourceOf returns the Secret of a credential, as namespace/name UID.
func SourceOf(c Credential) string {
	return c.source.Namespace + "/" + c.source.Name + " " + string(c.source.UID)
}
