package console

import "github.com/sandbox-lease/terraform-provider-sandbox/sandbox"

// ShowPages shows a list that read returns in pages. show must advance the position at which the next page starts. A
// page shorter than size is the last one.
func ShowPages[T any](size int, read func() ([]T, error), show func(T) error) error {
	for {
		page, err := read()
		if err != nil {
			return err
		}
		for _, entry := range page {
			if err := show(entry); err != nil {
				return err
			}
		}
		if len(page) < size {
			return nil
		}
	}
}

// EveryPage reads all pages of a list, each after the last id of the page before. The result is never nil.
func EveryPage[T any](read func(after string) ([]T, error), id func(T) string) ([]T, error) {
	all := []T{}
	for after := ""; ; {
		page, err := read(after)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if len(page) < sandbox.MaxPage {
			return all, nil
		}
		after = id(page[len(page)-1])
	}
}
