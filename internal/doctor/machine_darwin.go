package doctor

func checkSubreaper() Check {
	return good("subreaper", "not on this system: processes that leave their session's tree are not found")
}
